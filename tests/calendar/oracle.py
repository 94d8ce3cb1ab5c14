"""The calendar's rules once more, by Python's zoneinfo over the tzdata package: nothing here is Midwatch's own code.

Reads one question a line from standard input, `{"after": seconds, "created": seconds, "schedule": {...}}`, and writes
one answer a line: the next windows strictly later than `after` as `[[seconds, mark], ...]`, at most two of them.
With the argument `release` it writes which IANA release it reads, and ends.
"""

import calendar
import json
import re
import sys
import zoneinfo
from datetime import date, datetime, timedelta
from functools import lru_cache

import tzdata

# The machine's own copy may be of another release.
zoneinfo.reset_tzpath(to=[])

WANTED = 2
EPOCH = datetime(1970, 1, 1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LAST = datetime(2500, 1, 1)
LAST_S = (LAST - EPOCH) // SECOND
FIRST_S = (datetime(1900, 1, 1) - EPOCH) // SECOND
WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
# How many days an `every` with `between` is followed.
FAR = 120


@lru_cache(None)
def zone_of(name):
    return zoneinfo.ZoneInfo(name)


@lru_cache(None)
def instant(text):
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def local(zone, at):
    """The time on the wall at an instant; and what is added to UTC for it, in seconds."""
    wall = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
    since = wall - EPOCH
    return wall, since.days * 86_400 + since.seconds - at


def resolve(zone, wall):
    """A fixed local time as an instant: moved forward by a gap, the first of two in a fold.

    Only the way from instants to local times is asked of zoneinfo: back, it contradicts itself around a zone's last
    listed change (Nuuk on 28 October 2023 has an offset that no instant has).
    """
    as_utc = (wall - EPOCH) // SECOND
    before, after = local(zone, as_utc - 86_400)[1], local(zone, as_utc + 86_400)[1]
    shown = [at for at in {as_utc - before, as_utc - after} if local(zone, at)[0] == wall]
    if shown:
        return min(shown), "none" if len(shown) == 1 else "first_of_two"
    return as_utc - before, "moved"


def minute_of(text):
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def last_of(day):
    return calendar.monthrange(day.year, day.month)[1]


# Cron fields.


def number(text, names, base):
    lower = text.lower()
    return names.index(lower) + base if lower in names else int(text)


def values(field, low, high, names=(), base=0):
    found = set()
    for item in field.split(","):
        body, _, step = item.partition("/")
        if body in ("*", "?"):
            start, end = low, high
        elif "-" in body:
            start, end = (number(part, names, base) for part in body.split("-"))
            if end == 0 and start > 0 and high == 7:
                end = 7
        else:
            start = end = number(body, names, base)
        found.update(range(start, end + 1, int(step or 1)))
    return found


def nearest_weekday(day, wanted):
    """The working day nearest to the given day of this month, in the same month."""
    last = last_of(day)
    if wanted > last:
        return None
    falls = date(day.year, day.month, wanted).weekday()
    if falls == 5:
        return wanted - 1 if wanted > 1 else wanted + 2
    if falls == 6:
        return wanted + 1 if wanted < last else wanted - 2
    return wanted


def day_of_month_test(field):
    tests = []
    for item in field.lower().split(","):
        if item == "l":
            tests.append(lambda day: day.day == last_of(day))
        elif item == "lw":
            tests.append(lambda day: day.day == nearest_weekday(day, last_of(day)))
        elif re.fullmatch(r"\d+w", item):
            tests.append(lambda day, wanted=int(item[:-1]): day.day == nearest_weekday(day, wanted))
        else:
            tests.append(lambda day, known=values(item, 1, 31): day.day in known)
    return lambda day: any(test(day) for test in tests)


def day_of_week_test(field):
    names = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
    is_on = lambda day, which: day.isoweekday() % 7 == number(which, names, 0) % 7
    tests = []
    for item in field.lower().split(","):
        if "#" in item:
            which, nth = item.split("#")
            tests.append(lambda day, which=which, nth=int(nth): is_on(day, which) and (day.day - 1) // 7 + 1 == nth)
        elif len(item) > 1 and item.endswith("l"):
            tests.append(lambda day, which=item[:-1]: is_on(day, which) and day.day + 7 > last_of(day))
        else:
            known = {value % 7 for value in values(item, 0, 7, names)}
            tests.append(lambda day, known=known: day.isoweekday() % 7 in known)
    return lambda day: any(test(day) for test in tests)


@lru_cache(4096)
def cron(expr):
    minute, hour, day, month, weekday = expr.split()
    months = values(month, 1, 12, MONTHS, 1)
    by_date, by_weekday = day_of_month_test(day), day_of_week_test(weekday)
    either = day not in ("*", "?") and weekday not in ("*", "?")
    both = (lambda one: by_date(one) or by_weekday(one)) if either else (lambda one: by_date(one) and by_weekday(one))
    real = any(sign in minute + hour for sign in "*/")
    return real, values(minute, 0, 59), values(hour, 0, 23), months, both


# The kinds.


def fixed(zone, holds, months, minutes, after):
    """Local times on days: resolved one by one. A moved time may overtake others, by a day at most."""
    found = {}
    day = (local(zone, after)[0] - 2 * DAY).date()
    more = 3
    while more and day.year < 2500:
        if months is not None and day.month not in months:
            day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
            more -= len(found) >= WANTED
            continue
        if holds(day):
            midnight = datetime(day.year, day.month, day.day)
            for minute in minutes:
                at, mark = resolve(zone, midnight + timedelta(minutes=minute))
                if at > after and found.get(at) != "moved":
                    found[at] = mark
        more -= len(found) >= WANTED
        day += DAY
    return sorted(found.items())


def real_time(zone, minutes, hours, months, holds, after):
    """Each whole local minute of real time, in order; stretches that cannot fit are passed over where the offset
    stays."""
    found = []
    at = after + 1
    while len(found) < WANTED and at <= LAST_S:
        wall, offset = local(zone, at)
        if wall.second:
            at += 60 - wall.second
            continue
        if wall.month not in months:
            today = 86_400 - wall.hour * 3_600 - wall.minute * 60
            jumps = (today + (last_of(wall) - wall.day) * 86_400, today, 3_600)
        elif not holds(wall.date()):
            jumps = (86_400 - wall.hour * 3_600 - wall.minute * 60, 3_600)
        elif wall.hour not in hours:
            jumps = (60 * (60 - wall.minute),)
        else:
            if wall.minute in minutes:
                found.append((at, "none"))
            at += 60
            continue
        at += next((jump for jump in jumps if local(zone, at + jump)[1] == offset), 60)
    return found


def every(zone, schedule, created, after):
    step = schedule["minutes"] * 60
    anchor = instant(schedule["anchor"]) if "anchor" in schedule else None
    between = schedule.get("between")
    from_grid = lambda start, low: start + max(0, -((start - low) // step)) * step
    if between is None:
        # Counted from the creation the first window is one interval later; an anchor is a window itself.
        start = created + step if anchor is None else anchor
        first = from_grid(start, after + 1)
        return [(first + step * k, "none") for k in range(WANTED)]
    opens, closes = minute_of(between["from"]), minute_of(between["to"])
    found = set()
    midnight = datetime.combine((local(zone, after)[0] - 2 * DAY).date(), datetime.min.time())
    more = 3
    for _ in range(FAR):
        at = lambda days, minute: resolve(zone, midnight + timedelta(days=days, minutes=minute))[0]
        start, end = at(0, opens), at(int(closes < opens), closes)
        end = min(end, at(1, opens)) if closes < opens else end
        window = from_grid(start if anchor is None else anchor, max(start, after + 1))
        for _ in range(WANTED):
            if window < end:
                found.add(window)
            window += step
        more -= len(found) >= WANTED
        midnight += DAY
        if not more or midnight >= LAST:
            break
    return sorted((at, "none") for at in found)


def windows(question):
    schedule = question["schedule"]
    after, created = question["after"], question["created"]
    after = max(after, FIRST_S - 1)
    if "starts_at" in schedule:
        after = max(after, instant(schedule["starts_at"]) - 1)
    end = instant(schedule["ends_at"]) if "ends_at" in schedule else LAST_S
    kind = schedule["kind"]
    if kind == "once":
        at = instant(schedule["at"])
        found = [(at, "none")] if at > after else []
    else:
        zone = zone_of(schedule["zone"])
        if kind == "weekly":
            days = {WEEKDAYS.index(day) for day in schedule["days"]}
            found = fixed(
                zone, lambda day: day.weekday() in days, None, [minute_of(time) for time in schedule["times"]], after
            )
        elif kind == "monthly":
            days, last = set(schedule["days"]), "last" in schedule["days"]
            holds = lambda day: day.day in days or (last and day.day == last_of(day))
            found = fixed(zone, holds, None, [minute_of(time) for time in schedule["times"]], after)
        elif kind == "every":
            found = every(zone, schedule, created, after)
        else:
            real, minutes, hours, months, holds = cron(schedule["expr"])
            if real:
                found = real_time(zone, minutes, hours, months, holds, after)
            else:
                times = [hour * 60 + minute for hour in hours for minute in minutes]
                found = fixed(zone, holds, months, times, after)
    return [window for window in found if window[0] <= end][:WANTED]


def main():
    if sys.argv[1:] == ["release"]:
        print(tzdata.IANA_VERSION)
        return
    for line in sys.stdin:
        sys.stdout.write(json.dumps(windows(json.loads(line))) + "\n")


main()
