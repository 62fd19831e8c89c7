"""The date that a night is scheduled for: from the names that schedulers give, never the clock.

A CronJob calls its Job <cron>-<minutes since 1970>; a RayCronJob its RayJob the same, and the
RayJob's cluster <RayJob>-<5 letters or digits>. A pod that starts late, or again, keeps its date.
"""

import datetime
import re
from collections.abc import Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipeline.config import NightlyConfig
from pipeline.loading import ConfigError

CLUSTER = "RAY_CLUSTER_NAME"
_MINUTES = re.compile(r".+-(\d{7,9})")
_SUFFIX = re.compile(r"-[a-z0-9]{5}$")


def scheduled_date(name: str, time_zone: str) -> datetime.date:
    """The date, in a time zone, of a Job that a schedule made; ConfigError for another name."""
    match = _MINUTES.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"{name!r}: no scheduled Job's name; allowed: NAME-MINUTES, in minutes since 1970"
        )
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"time zone {time_zone!r}; allowed: such as Etc/UTC") from None
    moment = datetime.datetime.fromtimestamp(int(match[1]) * 60, tz=datetime.UTC)
    return moment.astimezone(zone).date()


def parsed(text: str) -> datetime.date:
    """A date as it is given; ConfigError for another form."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"date {text!r}; allowed: YYYY-MM-DD") from None


def date_of(cfg: NightlyConfig, environment: Mapping[str, str]) -> datetime.date:
    """The config's date, or that of the RayCronJob that made this cluster; else ConfigError."""
    if cfg.date is not None:
        return cfg.date
    name = environment.get(CLUSTER)
    if name is None:
        raise ConfigError(f"date: missing, and {CLUSTER} is not set; give date=YYYY-MM-DD")
    try:
        return scheduled_date(_SUFFIX.sub("", name), cfg.time_zone)
    except ConfigError:
        raise ConfigError(
            f"date: missing, and {CLUSTER} {name!r} is none of a RayCronJob; give date=YYYY-MM-DD"
        ) from None
