package limiter

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// ErrDuration reports a text that is not a duration with units.
var ErrDuration = errors.New("not a duration")

const day = 24 * time.Hour

// A unit is a unit of a duration.
type unit struct {
	name   string
	length time.Duration
	whole  bool // used only for multiples: 1w, but 8d
}

// units returns the units from the longest to the shortest. There is no year, because it
// has 365 or 366 days.
func units() [6]unit {
	return [6]unit{
		{"w", 7 * day, true}, {"d", day, false}, {"h", time.Hour, false},
		{"m", time.Minute, false}, {"s", time.Second, false}, {"ms", time.Millisecond, false},
	}
}

// ParseDuration parses a duration of integers with units: 50ms, 1h30m, 1d, 2w. The units
// are ms, s, m, h, d (24 h) and w (7 d), each at most once and in descending order, so that
// a text has one meaning: 1m1d is not a month and a day. A sign, a fraction, a number
// without a unit, and a value beyond the range of time.Duration (292 years) are
// ErrDuration.
func ParseDuration(s string) (time.Duration, error) {
	var sum time.Duration
	if s == "" {
		return 0, ErrDuration
	}
	for _, u := range units() {
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
			return 0, ErrDuration
		}
		sum += time.Duration(n) * u.length
		if s = s[digits+len(name):]; s == "" {
			return sum, nil
		}
	}
	return 0, ErrDuration
}

// letters returns the beginning of s up to the next digit.
func letters(s string) string {
	for i := range len(s) {
		if '0' <= s[i] && s[i] <= '9' {
			return s[:i]
		}
	}
	return s
}

// FormatDuration formats d, which must not be negative, for ParseDuration, in the longest
// units: 1m for 60 s. Weeks are used only for whole weeks. Parts below a millisecond are
// dropped; 0 is 0s.
func FormatDuration(d time.Duration) string {
	d = d.Truncate(time.Millisecond)
	if d <= 0 {
		return "0s"
	}
	var out []byte
	for _, u := range units() {
		if d < u.length || u.whole && d%u.length != 0 {
			continue
		}
		out = strconv.AppendInt(out, int64(d/u.length), 10)
		out = append(out, u.name...)
		d %= u.length
	}
	return string(out)
}
