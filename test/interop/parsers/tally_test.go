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
func (t *tally) compare(raw []byte, ours reading, theirs []reading) {
	t.accepted += len(ours.messages)
	refused := make([]int, len(ours.messages))
	for i, other := range theirs {
		for at, m := range ours.messages {
			d := difference(m, other, at)
			if d == "" {
				t.same[t.others[i].name]++
				continue
			}
			why, ok := (&disagreement{t.others[i].name, m, other, d, string(raw)}).reason()
			if at >= len(other.messages) && !ok {
				refused[at]++
			}
			if !ok {
				t.fail("%s: %q\n  ours   %+v\n  theirs %+v\n  %s", t.others[i].name, raw, ours, other, d)
			} else {
				t.listed[t.others[i].name+": "+why]++
			}
			break // what follows has another beginning for the two
		}
	}
	for _, n := range refused {
		if n == len(theirs) {
			t.fail("accepted what all refuse: %q\n  ours   %+v\n  theirs %+v", raw, ours, theirs)
		}
	}
}

func (t *tally) fail(format string, args ...any) {
	if t.failed++; t.failed <= 20 {
		t.t.Errorf(format, args...)
	}
}

func (t *tally) report() {
	for _, p := range t.others {
		fmt.Printf("%s: of %d messages that Weir accepted, %s reads %d as the same\n", t.t.Name(), t.accepted, p.name, t.same[p.name])
	}
	for _, why := range slices.Sorted(maps.Keys(t.listed)) {
		fmt.Printf("  %5d  %s\n", t.listed[why], why)
	}
	if t.failed > 0 {
		fmt.Printf("%s: %d differences without a reason\n", t.t.Name(), t.failed)
	}
	if t.accepted < 1000 {
		t.t.Errorf("only %d messages were accepted; this shows nothing", t.accepted)
	}
}

// nothingRead begins the difference to a parser that has refused the message.
const nothingRead = "there is none: "

// difference says in what the message of the other at that place is another; nothing if
// it is the same.
func difference(m message, other reading, at int) string {
	if at >= len(other.messages) {
		return nothingRead + other.why
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
