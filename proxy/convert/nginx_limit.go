package convert

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// use returns the limits that apply in a context, and the lists that they need.
func (c *nginxConfig) use(context nginxContext) (limits, lists []string) {
	exempting := 0 // limits with lists
	for _, d := range slices.Concat(context.req, context.conn) {
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
		if zone.key == "" {
			continue // has a note
		}
		if name := c.limit(zone, d, context.mode(d)); !slices.Contains(limits, name) {
			limits = append(limits, name)
		}
		if len(zone.lists) > 0 {
			exempting++
		}
		lists = append(lists, zone.lists...)
	}
	slices.Sort(lists)
	lists = slices.Compact(lists)
	if len(lists) > 0 && len(limits) > exempting {
		c.note(0, "a list exempts from all limits of a route, in nginx an empty key only from those of its zone", "write a route of their own for limits that nobody is exempt from")
	}
	return limits, lists
}

// mode returns the mode of a limit: shadow for one that refuses nobody, empty for enforce.
func (c nginxContext) mode(d directive) string {
	if c.reqDryRun && d.name == "limit_req" || c.connDryRun && d.name == "limit_conn" {
		return "shadow"
	}
	return ""
}

// limit returns the name of the limit for a limit_req or limit_conn, which all that use the
// zone in the same way share.
func (c *nginxConfig) limit(zone nginxZone, d directive, mode string) string {
	id := fmt.Sprint(d.name, d.args, mode)
	if l := c.limits[id]; l != nil {
		return l.name
	}
	fields := mapping{{"key", zone.key}}
	if d.name == "limit_conn" {
		n, err := strconv.ParseInt(d.arg(1), 10, 32)
		if err != nil || n < 1 {
			c.note(d.line, d.String()+" has no number", "expected limit_conn ZONE NUMBER; 1 is written")
			n = 1
		}
		fields.set("concurrent", c.concurrent(n, d.line))
	} else {
		fields = append(fields, leaky(zone.count, zone.per, nginxBurst(d))...)
	}
	fields.set("mode", mode)
	l := c.addLimit(zone.name, fields)
	for id, other := range c.limits {
		if strings.HasPrefix(id, d.name+"[") && strings.HasPrefix(other.name, zone.name) {
			l.note(d.line, d.String()+": nginx has one count for zone "+zone.name+", Weir another one for this use of it", "use the zone in the same way everywhere if it should stay one count")
			break
		}
	}
	if d.name == "limit_req" && nginxBurst(d).longest(zone.count, zone.per) > longestWait {
		l.note(d.line, d.String()+" lets requests wait for more than a minute", "they are refused after a minute; write a smaller burst, or nodelay")
	}
	c.limits[id] = l
	return l.name
}

// A burst is what limit_req allows beyond its rate: so many requests, of which those beyond
// free wait.
type burst struct{ all, free int64 }

// nginxBurst reads the burst of a limit_req.
func nginxBurst(d directive) burst {
	var b burst
	for _, arg := range d.args {
		name, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.ParseInt(value, 10, 32)
		switch name {
		case "burst":
			b.all = n
		case "delay":
			b.free = n
		case "nodelay":
			b.free = math.MaxInt32
		}
	}
	b.free = min(b.free, b.all)
	return b
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

// windowName returns a window as a rate has it.
func windowName(window time.Duration) string {
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
