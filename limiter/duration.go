package limiter

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// ErrInvalidDuration reports that a string is not a duration with units.
var ErrInvalidDuration = errors.New("not a duration")

const day = 24 * time.Hour

// A unit is a unit of time in a duration.
type unit struct {
	name   string
	length time.Duration
	whole  bool // FormatDuration uses it only without a remainder: 1w, but 8d
}

// durationUnits returns the units from the longest to the shortest. There is no year,
// because it has 365 or 366 days; a limit should say which.
func durationUnits() [6]unit {
	return [6]unit{
		{"w", 7 * day, true}, {"d", day, false}, {"h", time.Hour, false},
		{"m", time.Minute, false}, {"s", time.Second, false}, {"ms", time.Millisecond, false},
	}
}

// ParseDuration parses a duration in whole numbers with units: 50ms, 1h30m, 1d, 2w. The
// units are ms, s, m, h, d (24 h) and w (7 d). Each may appear at most once, the longest
// first, so that a string has only one meaning: 1m1d is not "one month and a day". It
// returns ErrInvalidDuration for a sign, a fraction, a number without a unit, and a
// duration that exceeds a time.Duration, about 292 years.
func ParseDuration(s string) (time.Duration, error) {
	var sum time.Duration
	if s == "" {
		return 0, ErrInvalidDuration
	}
	for _, u := range durationUnits() {
		digits := 0
		for digits < len(s) && '0' <= s[digits] && s[digits] <= '9' {
			digits++
		}
		name := letters(s[digits:])
		if name != u.name {
			continue
		}
		n, err := strconv.ParseInt(s[:digits], 10, 64)
		if err != nil || n > int64((math.MaxInt64-sum)/u.length) {
			return 0, ErrInvalidDuration
		}
		sum += time.Duration(n) * u.length
		if s = s[digits+len(name):]; s == "" {
			return sum, nil
		}
	}
	return 0, ErrInvalidDuration
}

// letters returns the part of s before the first digit.
func letters(s string) string {
	for i := range len(s) {
		if '0' <= s[i] && s[i] <= '9' {
			return s[:i]
		}
	}
	return s
}

// FormatDuration formats d in the longest units, as ParseDuration reads it: 1m for 60 s.
// Weeks are used only if d is a whole number of weeks. d must not be negative; parts
// shorter than a millisecond are dropped, and 0 is "0s".
func FormatDuration(d time.Duration) string {
	d = d.Truncate(time.Millisecond)
	if d <= 0 {
		return "0s"
	}
	var out []byte
	for _, u := range durationUnits() {
		if d < u.length || u.whole && d%u.length != 0 {
			continue
		}
		out = strconv.AppendInt(out, int64(d/u.length), 10)
		out = append(out, u.name...)
		d %= u.length
	}
	return string(out)
}
