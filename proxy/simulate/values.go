package simulate

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// stringOf returns b as a string that shares its memory. It is valid as long as b is unchanged.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// parseNumber parses a non-negative decimal number; its fraction is returned in billionths.
func parseNumber(s string) (whole, billionths int64, ok bool) {
	digits, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, 0, false
	}
	f, err := strconv.ParseUint((fraction + "000000000")[:9], 10, 63)
	return int64(n), int64(f), err == nil
}

// parseTime parses a time in the notations of servers: RFC 3339, also without T or zone, that of Apache and
// nginx (22/Nov/2026:11:05:47 +0000), or a number of seconds, milliseconds, microseconds or nanoseconds since
// 1970; the unit is the one that gives a time after 1973.
func parseTime(s string) (time.Time, bool) {
	if !strings.ContainsAny(s, "-/") {
		return parseEpoch(s)
	}
	layouts := [...]string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00",
		"2006-01-02 15:04:05 Z07:00", time.DateTime, "2006-01-02T15:04:05"}
	if len(s) > 2 && s[2] == '/' {
		layouts[0] = "02/Jan/2006:15:04:05 -0700"
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseEpoch parses a number since 1970 in the unit that fits.
func parseEpoch(s string) (time.Time, bool) {
	whole, billionths, ok := parseNumber(s)
	switch {
	case whole < 1e8:
		return time.Time{}, false
	case whole < 1e11:
		return time.Unix(whole, billionths), ok
	case whole < 1e14:
		return time.UnixMilli(whole).Add(time.Duration(billionths / 1e3)), ok
	case whole < 1e17:
		return time.UnixMicro(whole), ok
	}
	return time.Unix(0, whole), ok
}

// parseDuration parses the duration of a request.
func parseDuration(is role, v scalar) (took time.Duration, ok bool) {
	unit := time.Second
	switch {
	case is == roleMillis:
		unit = time.Millisecond
	case is == roleMicros:
		unit = time.Microsecond
	case is == roleNanos:
		unit = time.Nanosecond
	case is == roleDuration && v.bare && !strings.Contains(v.text, "."):
		unit = time.Millisecond // Envoy logs milliseconds; Caddy logs seconds with a fraction
	case is == roleDuration && strings.ContainsAny(v.text, "hms"):
		took, err := time.ParseDuration(v.text)
		return took, err == nil && took >= 0
	}
	whole, billionths, ok := parseNumber(v.text)
	took = time.Duration(whole)*unit + time.Duration(billionths)*unit/1e9
	return took, ok && whole <= int64(math.MaxInt64/unit)
}
