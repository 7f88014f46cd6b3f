"""Dagster's pages (1.13) as a person uses them: what is clicked, what is read, and a picture of each step."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, Response, expect

from millrace_support.dagster_ui import await_it

LAUNCHES = re.compile(r"\blaunch(Run|MultipleRuns|PipelineExecution|PartitionBackfill)\(")
TOGGLES = re.compile(r"\b(startSchedule|stopRunningSchedule)\(")
LAUNCHED_ID = re.compile(r'"(?:id|backfillId)":\s*"([^"]+)"')
SHOWN_ID = 8  # characters of an id of a run that its link shows
PARTITIONS_THERE = re.compile(r"Showing \d+ of \d+ partitions")
LOADING = re.compile("^Loading")
IS_DRAWN = """canvas => {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 200 && data[at + 2] > data[at] + 80) return true;
    return false;
}"""  # lines and points are blue, axes and labels grey


class DagsterPages:
    """One window of a browser on the webserver at `url`, and a folder for its pictures."""

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self._page = page
        self._url = url
        self._pictures = pictures
        self._taken = 0

    def picture(self, name: str) -> None:
        """Saves what the window shows as `NN-NAME.png`, once nothing in it is loading."""
        expect(self._page.get_by_text(LOADING)).to_have_count(0)
        self._taken += 1
        self._page.screenshot(path=self._pictures / f"{self._taken:02}-{name}.png")

    def open_asset(self, name: str, tab: str = "Overview") -> None:
        """Opens the page of an asset of the cluster `millrace`, such as table/flights, at one of its tabs."""
        self._page.goto(f"{self._url}/assets/millrace/{name}")
        self.choose_tab(tab)

    def choose_tab(self, name: str) -> None:
        """Clicks on a tab of an asset's page."""
        tab = self._page.get_by_role("tab", name=name, exact=True)
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")

    def materialize(self) -> str:
        """Clicks on *Materialize*; returns the run's id."""
        return self._launched(self._button("Materialize"))

    def reload_range(self, first: str, last: str) -> str:
        """Launches a backfill of a range of partitions from an asset's page; returns its id."""
        self._button("Materialize…").click()
        dialog = self._page.get_by_role("dialog")
        expect(dialog.get_by_text(PARTITIONS_THERE)).to_be_visible()
        partitions = dialog.get_by_role("textbox")
        partitions.fill(f"[{first}...{last}]")
        partitions.press("Enter")
        expect(dialog.get_by_text("3 partitions", exact=True)).to_be_visible()
        self.picture("launch-dialog")
        return self._launched(dialog.get_by_role("button", name="Launch backfill", exact=True))

    def open_run(self, run_id: str) -> None:
        """Goes to the list of runs, and from there to a run or a backfill."""
        self._go_to("Runs")
        self._page.get_by_role("link", name=run_id[:SHOWN_ID]).click()
        self._page.wait_for_url(re.compile(f"/runs/(b/)?{run_id}"))

    def see(self, text: str) -> None:
        """Waits until the window shows a text, alone in an element."""
        expect(self._page.get_by_text(text, exact=True).first).to_be_visible()

    def see_part(self, text: str) -> None:
        """Waits until the window shows a text, as a part of what an element has."""
        expect(self._page.get_by_text(text).first).to_be_visible()

    def see_below(self, heading: str, text: str) -> None:
        """Waits until the window shows a text in the box that a heading begins."""
        box = self._page.get_by_text(heading, exact=True).locator("xpath=..")
        expect(box.get_by_text(text, exact=True)).to_be_visible()

    def see_metadata(self, key: str, text: str) -> None:
        """Waits until the table of metadata has a key with a text, and scrolls there."""
        row = self._metadata(key)
        expect(row.get_by_role("cell", name=text, exact=True)).to_be_visible()
        row.scroll_into_view_if_needed()

    def preview(self, key: str) -> list[list[str]]:
        """Opens the table that a key of the metadata keeps in Markdown, takes a picture, and returns its rows."""
        self._metadata(key).get_by_text("[Show Markdown]").click()
        dialog = self._page.get_by_role("dialog")
        rows = dialog.locator("tbody tr")
        rows.first.wait_for()
        self.picture("preview")
        shown = [row.locator("td").all_inner_texts() for row in rows.all()]
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)
        return shown

    def see_plot(self, name: str) -> None:
        """Switches the metadata to plots, and waits until that of a metric is drawn; takes a picture."""
        self._button("Plots").click()
        plot = self._page.get_by_text(name, exact=True).locator("xpath=following::canvas[1]")
        plot.scroll_into_view_if_needed()
        await_it(lambda: plot.evaluate(IS_DRAWN))
        self.picture("plots")

    def execute_check(self, name: str) -> None:
        """Chooses a check in the tab of an asset's checks, and clicks on *Execute*."""
        self._page.get_by_text(name, exact=True).first.click()  # the list of checks comes first
        self._button("Execute").click()

    def toggle(self, schedule: str) -> None:
        """Goes to the page of automations, and clicks on the switch of a schedule; waits until it has changed."""
        self._go_to("Automation")
        link = self._page.locator(f"a[href$='/schedules/{schedule}']")
        row = self._page.locator("[data-index]").filter(has=link)
        switch = row.get_by_role("checkbox").nth(1)  # the first one selects the row
        expect(switch).to_be_enabled()
        was_on = switch.is_checked()
        self._answer(TOGGLES, row.locator("label").nth(1))
        expect(switch).to_be_checked(checked=not was_on)

    def _metadata(self, key: str) -> Locator:
        """Returns the row of a key in the table of metadata."""
        return self._page.get_by_role("row").filter(has=self._page.get_by_role("cell", name=key, exact=True))

    def _go_to(self, page: str) -> None:
        """Clicks on a page's name in the navigation, which comes before all else."""
        self._page.get_by_role("link").filter(has_text=re.compile(f"^{page}$")).first.click()

    def _button(self, text: str) -> Locator:
        """Returns the button with this text; its accessible name has that of its icon, too."""
        return self._page.get_by_role("button").filter(has_text=re.compile(f"^{text}$"))

    def _launched(self, button: Locator) -> str:
        """Clicks on a button, and returns the id in the webserver's answer, which the page shows for some seconds."""
        answer = self._answer(LAUNCHES, button)
        found = LAUNCHED_ID.search(answer)
        assert found is not None, answer
        return found[1]

    def _answer(self, mutation: re.Pattern[str], clicked: Locator) -> str:
        """Clicks, and returns the webserver's answer to the mutation that the page sends then."""

        def is_it(response: Response) -> bool:
            return mutation.search(response.request.post_data or "") is not None

        with self._page.expect_response(is_it) as answer:
            clicked.click()
        text: str = answer.value.text()
        return text
