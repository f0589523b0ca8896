package limiter

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// ErrInvalidDuration reports that a text is not a duration with units.
var ErrInvalidDuration = errors.New("not a duration")

const day = 24 * time.Hour

// A unit is what a number of a duration counts.
type unit struct {
	name   string
	length time.Duration
	whole  bool // is written only when nothing smaller is left over: 1w, but 8d
}

// durationUnits are from the longest to the shortest. A year is none: it has 365 days or
// 366, and a limit that counts years should say which.
func durationUnits() [6]unit {
	return [6]unit{
		{"w", 7 * day, true}, {"d", day, false}, {"h", time.Hour, false},
		{"m", time.Minute, false}, {"s", time.Second, false}, {"ms", time.Millisecond, false},
	}
}

// ParseDuration reads a duration in whole numbers with units: 50ms, 1h30m, 1d, 2w.
// The units are ms, s, m, h, d (24 h) and w (7 d), each at most once and the longest
// first, so that a text has one meaning: 1m1d is no month and a day. A sign, a
// fraction or a number without a unit is ErrInvalidDuration, and so is what is too long for a
// time.Duration, some 292 years.
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

// letters is the beginning of s up to the next digit.
func letters(s string) string {
	for i := range len(s) {
		if '0' <= s[i] && s[i] <= '9' {
			return s[:i]
		}
	}
	return s
}

// FormatDuration writes d, which is not negative, as ParseDuration reads it, in the
// longest units: 1m for 60 s. Weeks stand only where d is nothing but weeks. What is
// shorter than a millisecond is left out; 0 is 0s.
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
