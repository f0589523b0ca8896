package simulate

import "time"

// A timeParser parses the times of lines. It caches the last one, because many lines have the same
// time.
type timeParser struct {
	text []byte
	time time.Time
}

// parse parses a time in the notations of servers: RFC 3339, that of Apache and nginx
// (22/Nov/2026:11:05:47 +0000), or a number of seconds, milliseconds, microseconds or nanoseconds
// since 1970; the unit is the one that gives a time after 1973.
func (p *timeParser) parse(s string) (time.Time, bool) {
	if s == string(p.text) && s != "" {
		return p.time, true
	}
	t, ok := parseTime(s)
	if ok {
		p.text, p.time = append(p.text[:0], s...), t
	}
	return t, ok
}

func parseTime(s string) (time.Time, bool) {
	if whole, billionths, ok := parseNumber(s); ok {
		return epoch(whole, billionths)
	}
	if len(s) >= 26 && s[2] == '/' {
		t, err := time.Parse("02/Jan/2006:15:04:05 -0700", s)
		return t, err == nil
	}
	if len(s) >= 20 && s[4] == '-' {
		if t, ok := parseRFC3339(s); ok {
			return t, true
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// epoch converts a number since 1970 in the unit that fits.
func epoch(whole, billionths int64) (time.Time, bool) {
	switch {
	case whole < 1e8:
		return time.Time{}, false
	case whole < 1e11:
		return time.Unix(whole, billionths), true
	case whole < 1e14:
		return time.UnixMilli(whole).Add(time.Duration(billionths / 1e3)), true
	case whole < 1e17:
		return time.UnixMicro(whole), true
	}
	return time.Unix(0, whole), true
}

// parseRFC3339 parses the usual form, 2026-11-22T11:05:47.123Z, faster than package time.
func parseRFC3339(s string) (time.Time, bool) {
	if s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[len(s)-1] != 'Z' {
		return time.Time{}, false
	}
	var parts [6]int
	for i, at := range [...]struct{ from, to int }{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}} {
		for _, c := range []byte(s[at.from:at.to]) {
			if c < '0' || '9' < c {
				return time.Time{}, false
			}
			parts[i] = parts[i]*10 + int(c-'0')
		}
	}
	nanos := int64(0)
	if s[19] != 'Z' {
		_, billionths, ok := parseNumber("0" + s[19:len(s)-1])
		if s[19] != '.' || !ok {
			return time.Time{}, false
		}
		nanos = billionths
	}
	if parts[1] < 1 || parts[1] > 12 || parts[2] < 1 || parts[2] > 31 || parts[3] > 23 || parts[4] > 59 || parts[5] > 60 {
		return time.Time{}, false
	}
	return time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], int(nanos), time.UTC), true
}
