package convert

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// limitsOf returns the limits that apply in a context.
func (c *nginxConfig) limitsOf(context nginxContext) (limits []string) {
	for _, d := range slices.Concat(context.directives["limit_req"], context.directives["limit_conn"]) {
		use(d)
		name := d.arg(0)
		for _, arg := range d.args {
			if value, ok := strings.CutPrefix(arg, "zone="); ok {
				name = value
			}
		}
		zone, known := c.zones[d.name+" "+name]
		if !known {
			c.note(d.line, d.String()+" names a zone that is not in this file", "convert the output of nginx -T, which has all files")
			continue
		}
		use(zone.directive)
		key := c.key(zone.line, zone.name, zone.arg(0))
		if key.text == "" {
			continue // has a note
		}
		if context.is(d.name + "_dry_run") {
			key.shadow = true
		}
		name = c.limit(zone, d, key)
		if name == "" {
			c.note(d.line, d.String()+" is not carried over",
				"expected limit_req zone=NAME burst=NUMBER nodelay, or limit_conn NAME NUMBER")
			continue
		}
		if !slices.Contains(limits, name) {
			limits = append(limits, name)
		}
	}
	return limits
}

// limit returns the name of the limit for a limit_req or limit_conn, which all that use the
// zone in the same way share; "" for one that cannot be read.
func (c *nginxConfig) limit(zone nginxZone, d *directive, key zoneKey) string {
	id := fmt.Sprint(d.name, d.args, key.shadow)
	if l := c.limits[id]; l != nil {
		return l.name
	}
	fields := mapping{{"key", key.text}}
	if d.name == "limit_conn" {
		n, err := strconv.ParseInt(d.arg(1), 10, 32)
		if err != nil || n < 1 {
			return ""
		}
		fields.set("concurrent", c.concurrent(n, d.line))
	} else if b, known := nginxBurst(d); known {
		fields = append(fields, leaky(zone.count, zone.per, b)...)
	} else {
		return ""
	}
	if key.shadow {
		fields.set("mode", "shadow")
	}
	l := c.addLimit(zone.name, fields)
	l.notes = key.notes
	for id, other := range c.limits {
		if strings.HasPrefix(id, d.name+"[") && strings.HasPrefix(other.name, zone.name) {
			l.note(d.line, d.String()+": nginx has one count for zone "+zone.name+", Weir another one for this use of it", "use the zone in the same way everywhere if it should stay one count")
			break
		}
	}
	if b, _ := nginxBurst(d); d.name == "limit_req" && b.longest(zone.count, zone.per) > longestWait {
		l.note(d.line, d.String()+" lets requests wait for more than a minute", "they are refused after a minute; write a smaller burst, or nodelay")
	}
	c.limits[id] = l
	return l.name
}

// A burst is what limit_req allows beyond its rate: so many requests, of which those beyond
// free wait.
type burst struct{ all, free int64 }

// nginxBurst reads the burst of a limit_req, and reports whether it can.
func nginxBurst(d *directive) (b burst, known bool) {
	for _, arg := range d.args {
		name, value, _ := strings.Cut(arg, "=")
		n, err := strconv.ParseInt(value, 10, 32)
		switch {
		case name == "zone":
		case name == "nodelay" && value == "":
			b.free = math.MaxInt32
		case err != nil || n < 0:
			return b, false
		case name == "burst":
			b.all = n
		case name == "delay":
			b.free = n
		default:
			return b, false
		}
	}
	b.free = min(b.free, b.all)
	return b, true
}

const (
	longestWait = time.Minute // how long a request may wait in Weir
	mostWaiting = 100_000     // how many may wait
)

// longest returns how long the last request of a burst waits at count requests per window.
func (b burst) longest(count int64, window time.Duration) time.Duration {
	return time.Duration(float64(b.all-b.free) * float64(window) / float64(count))
}

// leaky returns the fields of a limit that admits what the leaky bucket of nginx does. That
// counts the requests beyond the first one, so it holds one more than its burst: gcra with
// that burst has the same state in other units. A request that nginx delays waits in Weir
// until there is a permit, at most for as long as the last one of the burst.
func leaky(count int64, window time.Duration, b burst) mapping {
	fields := mapping{
		{"rate", fmt.Sprintf("%d/%s", count, windowName(window))},
		{"algorithm", "gcra"},
		{"burst", strconv.FormatInt(b.free+1, 10)},
	}
	if wait := min(b.longest(count, window), longestWait); wait > 0 {
		fields.set("wait", windowName(roundUp(wait)))
		fields.set("max_waiting", strconv.FormatInt(min(b.all+1, mostWaiting), 10)) // all may come at once
	}
	return fields
}

// roundUp returns a duration in whole milliseconds.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// windowName returns a window as a rate has it; "" for 0.
func windowName(window time.Duration) string {
	if window == 0 {
		return ""
	}
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if window%unit.length == 0 {
			return strconv.FormatInt(int64(window/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(window.Milliseconds(), 10) + "ms"
}
