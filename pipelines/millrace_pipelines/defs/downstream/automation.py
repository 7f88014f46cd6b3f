"""When downstream assets are brought up to date without a person or a schedule.

Dagster evaluates conditions in the sensor `default_automation_condition_sensor`, which runs in the project of
`millrace up`; in other projects it is stopped until it is started in the UI.
"""

from __future__ import annotations

import dagster as dg

Condition = dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]


def eager_past_blocking_checks() -> Condition:
    """Returns the condition of an asset that follows its dependencies as soon as their blocking checks have passed.

    It differs from Dagster's `eager` in two ways:

    - `eager` looks at no checks of other runs. Here a dependency whose blocking checks have failed, or not run since
      its update, holds the asset back until they pass.
    - `eager` forgets an update that comes while the asset's run is under way, which that run may not have seen. Here
      only a request after the update settles it, so another run follows.
    """
    request = dg.AutomationCondition.newly_requested() & ~dg.AutomationCondition.any_deps_updated()
    handled = request | dg.AutomationCondition.initial_evaluation()
    eager = dg.AutomationCondition.eager().replace("handled", handled.with_label("handled"))
    past_checks = dg.AutomationCondition.all_deps_blocking_checks_passed()
    return (eager & past_checks).with_label("eager, past blocking checks")
