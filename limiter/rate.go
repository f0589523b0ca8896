package limiter

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxCount is the largest Rate.Count. A store keeps counts in 32 bits and treats
	// one with the highest bit set as a negative number, and thus as 0.
	MaxCount = 1<<31 - 1
	// MaxWindow is the longest Rate.Window.
	MaxWindow = 366 * 24 * time.Hour
)

// ErrInvalidRate reports that a rate is not of the form COUNT/WINDOW or is out of range.
var ErrInvalidRate = errors.New("not a rate")

// A Rate is a number of permits, Count, per Window. Count is 1 to MaxCount. Window is a
// whole number of milliseconds, 1 ms to MaxWindow. The zero Rate is not valid.
type Rate struct {
	Count  int64
	Window time.Duration
}

// ParseRate parses COUNT/WINDOW: "5/1h", "100/10s", "10/1d", "20/1h30m". The window has a unit: ms, s, m,
// h, d (24 h) or w (7 d); a unit alone is one of it, so that "10/s" is "10/1s", and so is a word after
// per: "10 per minute". Errors wrap ErrInvalidRate and suggest a correction.
func ParseRate(s string) (Rate, error) {
	count, window, found := strings.Cut(strings.TrimSpace(s), "/")
	if before, word, isPhrase := strings.Cut(count, " per "); isPhrase && !found {
		if unit := unitOf(strings.TrimSpace(word)); unit != "" {
			count, window, found = strings.TrimSpace(before), unit, true
		}
	}
	if !found {
		return Rate{}, fmt.Errorf("%w: %q; write COUNT/WINDOW, for example %s", ErrInvalidRate, s, suggestRate(count, "1m"))
	}
	if _, err := ParseDuration("1" + window); err == nil && !strings.ContainsAny(window, "0123456789") {
		window = "1" + window
	}
	if unit := unitOf(window); unit != "" {
		return Rate{}, fmt.Errorf("%w: %q; the unit is a letter, for example %s", ErrInvalidRate, s, suggestRate(count, "1"+unit))
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || count[0] == '+' {
		return Rate{}, fmt.Errorf("%w: %q; the count is a whole number from 1 to %d, for example %s", ErrInvalidRate, s, int64(MaxCount), suggestRate(count, window))
	}
	w, err := ParseDuration(window)
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q; the window needs a number and a unit: ms, s, m, h, d or w", ErrInvalidRate, s)
	}
	r := Rate{Count: n, Window: w}
	if err := r.Check(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

// unitOf returns the unit that a word means, in the singular or the plural: m for minute. It returns "" for
// other words.
func unitOf(word string) string {
	units := map[string]string{"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d", "week": "w"}
	return units[strings.TrimSuffix(strings.ToLower(word), "s")]
}

// suggestRate returns a valid rate close to count and window, for an error message. It
// drops what follows the digits of count, as in 5r.
func suggestRate(count, window string) string {
	count = strings.TrimSpace(count)
	count = strings.TrimSuffix(count, strings.TrimLeft(count, "0123456789"))
	n, err := strconv.ParseInt(count, 10, 64)
	w, windowErr := ParseDuration(window)
	r := Rate{Count: n, Window: w}
	if err != nil || windowErr != nil || r.Check() != nil {
		return "5/1m"
	}
	return strconv.FormatInt(n, 10) + "/" + window
}

// Check returns an error that wraps ErrInvalidRate if r is out of range.
func (r Rate) Check() error {
	if r.Count < 1 || r.Count > MaxCount {
		return fmt.Errorf("%w: %d permits; the count is a whole number from 1 to %d", ErrInvalidRate, r.Count, int64(MaxCount))
	}
	if r.Window < time.Millisecond || r.Window > MaxWindow || r.Window%time.Millisecond != 0 {
		return fmt.Errorf("%w: a window of %v; windows are whole milliseconds from 1ms to 366d", ErrInvalidRate, r.Window)
	}
	return nil
}

// String formats r as ParseRate reads it, with the window in the fewest units: 1/1m,
// 10/1d. Equal rates have equal strings.
func (r Rate) String() string {
	return strconv.FormatInt(r.Count, 10) + "/" + WindowName(r.Window)
}

// WindowName formats a window in the shortest form that ParseRate reads; 60 s is "1m". It
// is the name of the window in store keys, header fields and metrics.
func WindowName(d time.Duration) string { return FormatDuration(d) }

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
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		name := s[digits:]
		if i := strings.IndexAny(name, "0123456789"); i >= 0 {
			name = name[:i]
		}
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
