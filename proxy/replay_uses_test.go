package proxy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// usesFile counts codes that are not used by country, and money by country.
const usesFile = `
keys:
  phone: {from: "header:X-Phone", normalize: e164, sensitive: true}
  country: {of: phone, part: country}
prices: {sms: {key: phone, unit: EUR, rows: ["+49,*,0.1", "+33,*,0.2"]}}
upstreams: {demo: echo}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    refund_on: {status: [5xx]}
    limits:
      - {name: unused, key: country, rates: [2/1h, 3/1d], return_on: {route: verify, key: phone}, conversion: 50%, mode: MODE}
      - {name: spend, key: country, budget: [0.5/1d], price: sms, mode: MODE}
  - name: verify
    match: {methods: [POST], path: /verify}
    upstream: demo
    limits: [{name: guesses, key: phone, rate: 5/10m, count: {status: [4xx]}}]
`

// A codes makes the requests for codes, and those that enter them.
type codes struct{ all []LoggedRequest }

// ask adds a request at a minute of the day, which the upstream answers with a status.
func (c *codes) ask(minute int, target, phone string, status int) {
	at := time.Unix(1_800_000_000, 0).Add(time.Duration(minute) * time.Minute)
	c.all = append(c.all, LoggedRequest{At: at, Method: "POST", Host: "a", Target: target, Status: status, Fields: []LoggedField{{key.HeaderField("X-Phone"), phone}}})
}

// toGermany and toFrance return numbers of each country.
func toGermany(i int) string { return fmt.Sprintf("+491512345%04d", i) }
func toFrance(i int) string  { return fmt.Sprintf("+33612345%03d", i) }

// Of what a limit with return_on and a budget would have refused, the log tells what was used later, by key, with
// what it cost, and which rates would have been enough.
func TestReplay_TellsWhatWasUsed(t *testing.T) {
	for _, mode := range []string{"shadow", "enforce"} {
		var c codes
		for i := range 6 { // of which the first two are within the rates
			c.ask(i, "/send", toGermany(i), 200)
		}
		c.ask(6, "/verify", toGermany(4), 200) // which was refused, and adds nothing to V
		c.ask(7, "/verify", toGermany(0), 200) // one open, and one more allowed
		c.ask(8, "/verify", toGermany(0), 200) // nothing is open
		c.ask(9, "/verify", toGermany(1), 403)
		c.ask(10, "/send", toGermany(6), 200)
		c.ask(11, "/send", toGermany(7), 200)
		c.ask(12, "/send", toGermany(7), 200)
		c.ask(13, "/send", toGermany(8), 500) // refunded
		c.ask(14, "/verify", toGermany(7), 200)
		c.ask(15, "/send", toFrance(1), 200)
		got := replay(t, strings.ReplaceAll(usesFile, "MODE", mode), c.all...).Routes[0].Limits
		unused := UseCount{Sent: 9, Used: 4, Refused: 5, Wrong: 2, Cost: 90_000, Saved: 50_000, Floors: []Floor{{"1h", 5, 6}, {"1d", 5, 6}}}
		spend := UseCount{Sent: 9, Used: 4, Refused: 4, Wrong: 2, Cost: 90_000, Saved: 40_000, Spent: 90_000}
		subjects := []int64{9, 3, 3, 1}
		if mode == "enforce" { // what unused refuses does not reach the budget
			spend = UseCount{Sent: 4, Used: 2, Cost: 40_000, Spent: 40_000}
			subjects = []int64{5, 2, 0, 0}
		}
		for i, want := range []UseCount{unused, spend} {
			u := got[i].Uses
			if u.By != "verify" || u.Responses != 4 || u.Unread != 0 || u.Unit != "EUR" || len(u.Keys) != 2 || u.Keys[0].Key != "country=DE" || u.Keys[1].Key != "country=FR" || u.Keys[1].Sent != 1 || u.Keys[1].Cost != 20_000 {
				t.Errorf("%s: %s: %+v", mode, got[i].Name, *u)
			}
			if !reflect.DeepEqual(u.Keys[0].UseCount, want) {
				t.Errorf("%s: %s: Germany has %+v; want %+v", mode, got[i].Name, u.Keys[0].UseCount, want)
			}
			if u.Sent != want.Sent+1 || u.Cost != want.Cost+20_000 || u.Wrong != want.Wrong {
				t.Errorf("%s: %s: in all %+v", mode, got[i].Name, u.UseCount)
			}
		}
		if u := got[0].Uses; u.Subjects != 9 || u.SubjectsUsed != 3 || u.SubjectsRefused != 5 || u.SubjectsWrong != 2 {
			t.Errorf("%s: subjects of unused %+v", mode, *u)
		}
		if u := got[1].Uses; !reflect.DeepEqual([]int64{u.Subjects, u.SubjectsUsed, u.SubjectsRefused, u.SubjectsWrong}, subjects) {
			t.Errorf("%s: subjects of spend %+v", mode, *u)
		}
	}
}

// A rate that would have been enough for all that was used refuses none of it.
func TestReplay_FloorIsEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var c codes
	for minute := range 600 {
		n := random.IntN(1000)
		c.ask(2*minute, "/send", toGermany(n), 200)
		if random.IntN(3) > 0 {
			c.ask(2*minute+1, "/verify", toGermany(n), 200)
		}
	}
	floor := func(yaml string) *UseTally { return replay(t, yaml, c.all...).Routes[0].Limits[0].Uses }
	yaml := strings.ReplaceAll(usesFile, "MODE", "shadow")
	first := floor(yaml)
	if len(first.Floors) != 2 || first.Wrong == 0 {
		t.Fatalf("%+v: nothing is refused", first)
	}
	for _, of := range []func(Floor) int64{func(f Floor) int64 { return f.Used }, func(f Floor) int64 { return f.All }} {
		rates := fmt.Sprintf("[%d/1h, %d/1d]", of(first.Floors[0]), of(first.Floors[1]))
		again := floor(strings.Replace(yaml, "[2/1h, 3/1d]", rates, 1))
		if again.Wrong > 0 || again.Sent != 600 {
			t.Errorf("with %s, %+v; want that nothing is refused that was used", rates, again)
		}
	}
	if all := floor(strings.Replace(yaml, "[2/1h, 3/1d]", fmt.Sprintf("[%d/1h, %d/1d]", first.Floors[0].All, first.Floors[1].All), 1)); all.Refused > 0 {
		t.Errorf("%+v; want that nothing is refused", all)
	}
}

// What is followed is bounded: the number of subjects, and the requests of each, of which the latest count.
func TestUses_AreBounded(t *testing.T) {
	u := &uses{}
	tally := &useTally{window: time.Hour, bit: 1}
	tracker := &useTracker{most: 1, subjects: map[limiter.Key]*subjectUse{}, tallies: []*useTally{tally}}
	now := time.Unix(1_800_000_000, 0)
	for i := range 100 {
		tracker.add(limiter.KeyOf("a"), openUse{at: now.Add(time.Duration(i) * time.Minute), tally: tally, key: &KeyUse{}})
	}
	tracker.add(limiter.KeyOf("b"), openUse{at: now, tally: tally, key: &KeyUse{}})
	if tally.Untracked != 1 || tally.Subjects != 1 || len(tracker.subjects[limiter.KeyOf("a")].open) != maxOpen {
		t.Errorf("%+v, %d open", tally.UseTally, len(tracker.subjects[limiter.KeyOf("a")].open))
	}
	u.unbounded = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	u.use(now.Add(99*time.Minute), tracker, limiter.KeyOf("a"))
	u.use(now.Add(99*time.Minute), tracker, limiter.KeyOf("a"))
	if tally.Used != 60 { // those within the last hour
		t.Errorf("%d used; want 60", tally.Used)
	}
}
