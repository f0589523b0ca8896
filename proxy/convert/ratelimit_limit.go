package convert

import (
	"strconv"
	"strings"
	"time"
)

// A ratelimitLimit is a rate_limit of envoyproxy/ratelimit.
type ratelimitLimit struct {
	line   int
	name   string // "" for none
	count  int64
	window time.Duration
	shadow bool
	notes  []Note
	made   mapping // the fields of routes that apply it; nil before there is one
}

// limit reads the limit of a rule; nil if it has none, or an unlimited one.
func (r *ratelimitDomain) limit(at node) (*ratelimitLimit, error) {
	from := at.get("rate_limit")
	if !from.isThere() || from.at.Tag == "!!null" || from.get("unlimited").text() == "true" {
		return nil, nil
	}
	unit := from.get("unit")
	window := ratelimitUnit(unit.text())
	if window == 0 {
		return nil, r.wrong(from.line(), "the unit "+strconv.Quote(unit.text())+" is none", "expected second, minute, hour, day, week, month or year")
	}
	count, err := r.number(from.get("requests_per_unit"))
	if err != nil {
		return nil, err
	}
	units, err := r.number(from.get("unit_multiplier"))
	if err != nil {
		return nil, err
	}
	l := &ratelimitLimit{line: at.line(), name: from.get("name").text(), count: count, window: window, shadow: at.get("shadow_mode").text() == "true"}
	if l.shadow && count == 0 {
		return nil, nil // refuses nobody
	}
	l.bound(max(units, 1))
	if at.get("quota_mode").text() == "true" {
		l.note(at.get("quota_mode").line(), "quota_mode refuses a call only if all its descriptors with quota_mode are over their limits; Weir refuses it if one is",
			"leave it if Envoy sends one of them in a call, else write mode: shadow")
	}
	if replaced := from.get("replaces"); replaced.isThere() {
		replaced.useAll()
		l.note(replaced.line(), "replaces is not carried over: a call that has descriptors of both is counted by both",
			"have Envoy send only one of these descriptors")
	}
	return l, nil
}

// The largest rate of a limit.
const (
	mostRequests = 1<<31 - 1
	longestRate  = 366 * 24 * time.Hour
)

// bound sets the window, and keeps count and window in the range that rates have.
func (l *ratelimitLimit) bound(units int64) {
	if l.count > mostRequests {
		l.note(l.line, strconv.FormatInt(l.count, 10)+" requests are more than a rate has", strconv.Itoa(mostRequests)+" is written")
		l.count = mostRequests
	}
	if most := int64(longestRate / l.window); units > most {
		l.note(l.line, "the window is longer than a year", windowName(time.Duration(most)*l.window)+" is written")
		units = most
	}
	l.window *= time.Duration(units)
}

func (l *ratelimitLimit) note(line int, what, instead string) {
	l.notes = append(l.notes, Note{Line: line, What: what, Instead: instead})
}

// ratelimitUnit returns the length of a unit, 0 if there is none of this name.
func ratelimitUnit(name string) time.Duration {
	const day = 24 * time.Hour
	return map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day}[strings.ToLower(name)]
}

// apply returns the fields of a route that applies the limit at the end of a way. All such routes have one count.
func (r *ratelimitDomain) apply(l *ratelimitLimit, name string, way []*ratelimitRule) mapping {
	switch {
	case l.made != nil:
	case l.count == 0:
		l.made = mapping{{"lists", texts([]string{r.refuse(way[len(way)-1])})}}
	default:
		fields := mapping{{"key", r.key(way)}, {"rate", strconv.FormatInt(l.count, 10) + "/" + windowName(l.window)}, {"algorithm", "fixed_window"}}
		if l.shadow {
			fields.set("mode", "shadow")
		}
		made := r.addLimit(name, fields)
		made.notes = l.notes
		l.made = mapping{{"limits", texts([]string{made.name})}}
	}
	return l.made
}

// refuse returns the name of a list that refuses all that a rule matches.
func (r *ratelimitDomain) refuse(rule *ratelimitRule) string {
	value := string(rule.pattern)
	fields := mapping{{"key", mapping{{"from", text("descriptor:" + rule.key)}, {"on_missing", "shared"}}.flow()}, {"values", texts([]string{value})}, {"action", "deny"}}
	if rule.pattern.isOpen() || strings.TrimSpace(value) != value || value[0] == '#' {
		fields[1].value, fields[2].value = "[]", "only"
	}
	return r.addList(rule.key, fields)
}

// key returns the key by which a limit counts: the entries on the way to it whose values are open.
func (r *ratelimitDomain) key(way []*ratelimitRule) string {
	var parts []string
	for _, rule := range way {
		if rule.pattern.isOpen() && !rule.shared {
			parts = append(parts, r.addKey(rule.key, mapping{{"from", text("descriptor:" + rule.key)}, {"on_missing", "shared"}}))
		}
	}
	switch len(parts) {
	case 0:
		return "global"
	case 1:
		return parts[0]
	}
	return r.addKey(strings.Join(parts, "-"), mapping{{"join", "[" + strings.Join(parts, ", ") + "]"}})
}
