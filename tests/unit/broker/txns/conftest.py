"""A fixture that plays scenes with one broker's transactions."""

import asyncio

import pytest

from millrace_support.transaction_home import Home


@pytest.fixture
def play(tmp_path):
    """Run a scene; the folder stays for the next one."""

    def run(scene, **options):
        async def whole():
            home = Home(tmp_path, **options)
            try:
                await home.loaded()
                return await asyncio.wait_for(scene(home), 30)
            finally:
                home.close()

        return asyncio.run(whole())

    return run
