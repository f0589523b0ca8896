//go:build parsers

package parsers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A tally compares, and counts what came of it.
type tally struct {
	t        *testing.T
	others   []*parser
	accepted int            // messages that Weir has read
	same     map[string]int // of them, by parser
	listed   map[string]int // differences that have a reason, by parser and reason
	failed   int
}

func newTally(t *testing.T, others []*parser) *tally {
	return &tally{t: t, others: others, same: map[string]int{}, listed: map[string]int{}}
}

// compare holds what Weir has read of raw to what each other has.
func (y *tally) compare(raw []byte, ours reading, theirs []reading) {
	y.accepted += len(ours.messages)
	refused := make([]int, len(ours.messages))
	for i, other := range theirs {
		for at, m := range ours.messages {
			d := difference(m, other, at)
			if d == "" {
				y.same[y.others[i].name]++
				continue
			}
			why, ok := "", false
			if at >= len(other.messages) {
				refused[at]++
				why, ok = reason(y.others[i].name, m, other)
			}
			if !ok {
				y.fail("%s: %q\n  ours   %+v\n  theirs %+v\n  %s", y.others[i].name, raw, ours, other, d)
			} else {
				y.listed[y.others[i].name+": "+why]++
			}
			break // what follows has another beginning for the two
		}
	}
	for _, n := range refused {
		if n == len(theirs) {
			y.fail("accepted what all refuse: %q\n  ours   %+v\n  theirs %+v", raw, ours, theirs)
		}
	}
}

func (y *tally) fail(format string, args ...any) {
	if y.failed++; y.failed <= 20 {
		y.t.Errorf(format, args...)
	}
}

func (y *tally) report() {
	for _, p := range y.others {
		fmt.Printf("%s: of %d messages that Weir accepted, %s reads %d as the same\n", y.t.Name(), y.accepted, p.name, y.same[p.name])
	}
	for _, why := range slices.Sorted(maps.Keys(y.listed)) {
		fmt.Printf("  %5d  %s\n", y.listed[why], why)
	}
	if y.failed > 0 {
		fmt.Printf("%s: %d differences without a reason\n", y.t.Name(), y.failed)
	}
	if y.accepted < 1000 {
		y.t.Errorf("only %d messages were accepted; this shows nothing", y.accepted)
	}
}

// difference says in what the message of the other at that place is another; nothing if
// it is the same.
func difference(m message, other reading, at int) string {
	if at >= len(other.messages) {
		return "there is none: " + other.why
	}
	o := other.messages[at]
	switch {
	case o.what != m.what:
		return "method or status"
	case m.target != "" && plain(o.target) != plain(m.target):
		return "target"
	case !slices.Equal(o.fields, m.fields):
		return "fields"
	case o.body != m.body:
		return "body"
	}
	for _, line := range m.trailer { // those that must not stand there are left out here
		if !slices.Contains(o.trailer, line) {
			return "trailer"
		}
	}
	return ""
}

// plain is a target with what hyper's type for it changes: a scheme in small letters,
// and a path where there is none (RFC 9110 section 4.2.3).
func plain(target string) string {
	if scheme, rest, ok := strings.Cut(target, "://"); ok && !strings.HasPrefix(target, "/") {
		if !strings.Contains(rest, "/") {
			host, query, asked := strings.Cut(rest, "?")
			if rest = host + "/"; asked {
				rest += "?" + query
			}
		} else if before, path, _ := strings.Cut(rest, "/"); strings.Contains(before, "?") {
			host, query, _ := strings.Cut(before+"/"+path, "?")
			rest = host + "/?" + query
		}
		return strings.ToLower(scheme) + "://" + rest
	}
	return target
}
