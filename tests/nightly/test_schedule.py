"""The date of a night comes from the schedule's names alone."""

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.loading import ConfigError
from pipeline.nightly.schedule import CLUSTER, date_of, parsed, scheduled_date
from tests.nightly.world import config

# 2026-11-30T02:00Z is 1796004000 s = 29933400 min since 1970.
MINUTES = 29933400


@pytest.mark.parametrize(
    ("minutes", "zone", "date"),
    [
        (MINUTES, "Etc/UTC", "2026-11-30"),
        (MINUTES - 121, "Etc/UTC", "2026-11-29"),
        (MINUTES - 120, "Etc/UTC", "2026-11-30"),
        (MINUTES, "America/New_York", "2026-11-29"),  # 21:00 of the day before
        (MINUTES + 21 * 60, "Europe/Berlin", "2026-12-01"),  # 00:00 of the day after
    ],
)
def test_a_scheduled_minute_is_a_date_of_its_time_zone(minutes: int, zone: str, date: str) -> None:
    assert scheduled_date(f"igp-nightly-{minutes}", zone).isoformat() == date


@given(st.dates(datetime.date(2000, 1, 1), datetime.date(2100, 1, 1)), st.integers(0, 1439))
def test_every_minute_of_a_day_is_that_day(date: datetime.date, minute: int) -> None:
    midnight = datetime.datetime.combine(date, datetime.time(), datetime.UTC)
    minutes = int(midnight.timestamp()) // 60 + minute
    assert scheduled_date(f"cron-{minutes}", "Etc/UTC") == date


@pytest.mark.parametrize("name", ["igp-nightly", "igp-nightly-x2f9k", "29933400", ""])
def test_a_name_without_minutes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"NAME-MINUTES"):
        scheduled_date(name, "Etc/UTC")


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"time zone 'Mars/Olympus'"):
        scheduled_date(f"cron-{MINUTES}", "Mars/Olympus")


def test_a_given_date_goes_before_that_of_a_cluster() -> None:
    cfg = config(Path("d"), Path("r"), "2026-11-01")
    assert date_of(cfg, {CLUSTER: f"cron-{MINUTES}-x2f9k"}) == datetime.date(2026, 11, 1)


def test_the_cluster_of_a_rayjob_that_a_raycronjob_made_tells_the_date() -> None:
    cfg = config(Path("d"), Path("r"), "null", "time_zone=America/New_York")
    name = f"igp-nightly-{MINUTES}-x2f9k"
    assert date_of(cfg, {CLUSTER: name}) == datetime.date(2026, 11, 29)


@pytest.mark.parametrize("environment", [{}, {CLUSTER: "igp-corpus-x2f9k"}])
def test_without_either_there_is_no_date_and_never_that_of_the_clock(
    environment: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match=r"give date=YYYY-MM-DD"):
        date_of(config(Path("d"), Path("r"), "null"), environment)


def test_a_date_in_another_form_is_refused() -> None:
    assert parsed("2026-11-30") == datetime.date(2026, 11, 30)
    with pytest.raises(ConfigError, match=r"'30\.11\.2026'; allowed: YYYY-MM-DD"):
        parsed("30.11.2026")
