package upstream

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// newTestPool is a pool of targets http://a, http://b … of these weights.
func newTestPool(t testing.TB, c Config, weights ...int) *Pool {
	t.Helper()
	for i, w := range weights {
		c.Targets = append(c.Targets, config.Target{URL: mustURL(t, "http://"+string(rune('a'+i))), Weight: w})
	}
	p := mustPool(t, c)
	t.Cleanup(p.Close)
	return p
}

// choices are the hosts that p chooses one after the other, none of which is kept busy.
func choices(t testing.TB, p *Pool, now time.Time, n int) string {
	t.Helper()
	return chosen(t, p, now, n).hosts()
}

// busyChoices are the hosts that p chooses now, all of which stay busy.
func busyChoices(t testing.TB, p *Pool, n int) string {
	t.Helper()
	var all choice
	for range n {
		one := chosen(t, p, time.Now(), 1)
		one[0].inFlight.Add(0, 1)
		all = append(all, one...)
	}
	return all.hosts()
}

// A choice is the backends that were chosen, in this order.
type choice []*backend

func chosen(t testing.TB, p *Pool, now time.Time, n int) (all choice) {
	t.Helper()
	for range n {
		m, err := p.pick(now, selection{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func (c choice) hosts() string {
	var b strings.Builder
	for _, m := range c {
		b.WriteString(m.host)
	}
	return b.String()
}

func TestPick_RoundRobinByWeight(t *testing.T) {
	for _, c := range []struct {
		weights []int
		want    string
	}{
		{[]int{1}, "aaa"},
		{[]int{7}, "aaa"},
		{[]int{1, 1}, "abab"},
		{[]int{500, 500, 500}, "abcabc"},
		{[]int{5, 1, 1}, "aabacaa"},
		{[]int{2, 4}, "babbab"},
	} {
		if got := choices(t, newTestPool(t, Config{}, c.weights...), time.Now(), len(c.want)); got != c.want {
			t.Errorf("weights %v: turns %s, want %s", c.weights, got, c.want)
		}
	}
}

func TestPick_LeastLoaded(t *testing.T) {
	p := newTestPool(t, Config{Upstream: config.Upstream{Balance: config.BalanceLeastLoaded}}, 1, 1, 2)
	if got := busyChoices(t, p, 8); strings.Count(got, "a") != 2 || strings.Count(got, "b") != 2 || strings.Count(got, "c") != 4 {
		t.Errorf("eight that stay went to %s; want 2, 2 and 4 as the weights say", got)
	}
	p.backends[1].inFlight.Add(0, -p.backends[1].inFlight.Sum())
	if got := choices(t, p, time.Now(), 1); got != "b" {
		t.Errorf("chose %s; want the one that nobody asks", got)
	}
	p.backends[0].inFlight.Add(0, -p.backends[0].inFlight.Sum())
	p.backends[2].inFlight.Add(0, 1-p.backends[2].inFlight.Sum()) // loads 1 with one more, as the others would be
	if got := choices(t, p, time.Now(), 6); strings.Count(got, "a") == 0 || strings.Count(got, "b") == 0 {
		t.Errorf("equals were asked %s; want that they take turns", got)
	}
}

func TestPick_HashByMovesOnlyAffectedKeys(t *testing.T) {
	p := newTestPool(t, Config{Upstream: config.Upstream{Balance: config.BalanceHash, Health: config.Health{After: 1, Rest: time.Hour}}}, 1, 1, 2)
	of := func(i int) string {
		m, err := p.pick(time.Now(), selection{hash: fmt.Sprint("user-", i)})
		if err != nil {
			t.Fatal(err)
		}
		return m.host
	}
	const n = 4000
	before, counts := map[int]string{}, map[string]int{}
	for i := range n {
		before[i] = of(i)
		counts[before[i]]++
		if again := of(i); again != before[i] {
			t.Fatalf("user %d went to %s and to %s", i, before[i], again)
		}
	}
	for host, want := range map[string]float64{"a": 0.25, "b": 0.25, "c": 0.5} {
		if got := float64(counts[host]) / n; math.Abs(got-want) > 0.03 {
			t.Errorf("%s gets %v of them, want %v", host, got, want)
		}
	}
	p.group.recordConnect(p.backends[0], &p.config.Health, false)
	for i, was := range before {
		if now := of(i); now == "a" || was != "a" && now != was {
			t.Fatalf("user %d moved from %s to %s when a failed", i, was, now)
		}
	}
	if got := choices(t, p, time.Now(), 30); strings.Count(got, "b") != 10 {
		t.Errorf("without a hash key they went to %s, want turns by weight", got)
	}
}

func TestPick_RankOrder(t *testing.T) {
	now := time.Now()
	p := newTestPool(t, Config{Upstream: config.Upstream{MaxConnections: 1, Health: config.Health{After: 2, Rest: time.Minute, Path: "/", Interval: 1, Timeout: 1}}}, 1, 1, 1, 1)
	a, b, c, d := p.backends[0], p.backends[1], p.backends[2], p.backends[3]
	d.unhealthy = true
	b.ejectedUntil, b.failedConnects = now.Add(1), 2
	tried := []*backend{a, b}
	for _, want := range []*backend{c, a, b} { // fresh, has failed it, has failed it and rests
		got, err := p.pick(now, selection{tried: tried})
		if got != want || err != nil {
			t.Fatalf("chose %v, %v; want %s", got, err, want.host)
		}
		got.inFlight.Add(0, 1)
	}
	if got, err := p.pick(now, selection{}); got != nil || err != nil {
		t.Errorf("chose %v, %v; want none, as all are full", got, err)
	}
	for _, m := range p.backends {
		m.unhealthy = true
	}
	if got, err := p.pick(now, selection{}); got != nil || !errors.Is(err, errNoTarget) {
		t.Errorf("chose %v, %v; want that none is fit", got, err)
	}
}

func TestPick_OnlyBackend(t *testing.T) {
	now := time.Now()
	p := newTestPool(t, Config{Upstream: config.Upstream{MaxConnections: 1, Health: config.Health{After: 2, Rest: time.Minute, Path: "/", Interval: 1, Timeout: 1}}}, 1)
	m := p.backends[0]
	m.ejectedUntil, m.failedConnects = now.Add(1), 2
	if got, err := p.pick(now, selection{tried: []*backend{m}}); got != m || err != nil {
		t.Errorf("chose %v, %v; want the only one although it is ejected and was tried", got, err)
	}
	m.inFlight.Add(0, 1)
	if got, err := p.pick(now, selection{}); got != nil || err != nil {
		t.Errorf("chose %v, %v; want none, as it is full", got, err)
	}
	m.unhealthy = true
	if got, err := p.pick(now, selection{}); got != nil || !errors.Is(err, errNoTarget) {
		t.Errorf("chose %v, %v; want that it is not fit", got, err)
	}
}

func TestPick_SlowStart(t *testing.T) {
	now := time.Now()
	p := newTestPool(t, Config{Upstream: config.Upstream{Health: config.Health{After: 1, Rest: time.Minute, SlowStart: 10 * time.Second}}}, 1, 1)
	p.backends[1].recoveredAt = now
	var got []int
	for _, after := range []time.Duration{0, 5 * time.Second, 10 * time.Second} {
		p.backends[0].currentWeight, p.backends[1].currentWeight = 0, 0
		got = append(got, strings.Count(choices(t, p, now.Add(after), 110), "b"))
	}
	if !slices.Equal(got, []int{10, 37, 55}) && !slices.Equal(got, []int{10, 36, 55}) {
		t.Errorf("of 110 turns b got %v at once, half way and after it; want a tenth, half and all of its share", got)
	}
}

func TestHealth_EjectsAfterConsecutiveFailures(t *testing.T) {
	now := time.Now()
	h := config.Health{After: 2, Rest: 8 * time.Second, SlowStart: time.Minute}
	s := targetHealth{inFlight: stripe.NewUsers(1)}
	s.connectFailed(now, &h, 0)
	s.connectSucceeded(now, &h)
	s.connectFailed(now, &h, 0)
	if now.Before(s.ejectedUntil) || !s.recoveredAt.IsZero() {
		t.Fatal("ejected after failures that were not in a row")
	}
	s.connectFailed(now, &h, 0.5)
	for after, want := range map[time.Duration]bool{0: true, 8 * time.Second: true, 9*time.Second - 1: true, 9 * time.Second: false} {
		if got := now.Add(after).Before(s.ejectedUntil); got != want {
			t.Errorf("%v later ejected is %v, want %v: it rests 8 s and half of a quarter", after, got, want)
		}
	}
	later := now.Add(time.Minute)
	s.connectFailed(later, &h, 0)
	if !later.Before(s.ejectedUntil) {
		t.Error("one more failure after the rest is no reason to rest again")
	}
	s.connectSucceeded(later, &h)
	if later.Before(s.ejectedUntil) || !s.recoveredAt.Equal(later) {
		t.Error("it was reached and still rests, or does not start slowly")
	}
}

func TestHealth_NeverEjectsWhenDisabled(t *testing.T) {
	var s targetHealth
	for range 100 {
		s.connectFailed(time.Now(), &config.Health{}, 1)
	}
	if time.Now().Before(s.ejectedUntil) || s.slowStartFactor(time.Now(), &config.Health{}) != 1 {
		t.Error("the zero Health leaves a target alone")
	}
}

func TestHealth_ActiveChecks(t *testing.T) {
	now := time.Now()
	h := config.Health{After: 2, Rest: time.Hour}
	var s targetHealth
	for i, c := range []struct{ good, down bool }{{false, false}, {true, false}, {false, false}, {false, true}, {false, true}, {true, false}} {
		s.recordCheck(now, &h, c.good)
		if s.unhealthy != c.down {
			t.Errorf("down is %v after look %d", s.unhealthy, i)
		}
	}
	if !s.recoveredAt.Equal(now) {
		t.Error("it does not start slowly")
	}
	s.connectFailed(now, &h, 0)
	s.connectFailed(now, &h, 0)
	s.recordCheck(now, &h, true)
	if now.Before(s.ejectedUntil) {
		t.Error("a good look does not end a rest")
	}
}

func TestHealth_SlowStartFactorIsPositive(t *testing.T) {
	now := time.Now()
	h := config.Health{SlowStart: 10 * time.Second}
	s := targetHealth{recoveredAt: now}
	for after, want := range map[time.Duration]float64{-time.Second: 0.1, 0: 0.1, 5 * time.Second: 0.5, 10 * time.Second: 1, time.Hour: 1} {
		if got := s.slowStartFactor(now.Add(after), &h); got != want {
			t.Errorf("share %v later is %v, want %v", after, got, want)
		}
	}
}

func TestRetryBudget_RatioAndReserve(t *testing.T) {
	b := NewGroups(1).join("a")
	spend := func() (n int) {
		for b.withdraw() {
			n++
		}
		return n
	}
	if n := spend(); n != 10 {
		t.Errorf("%d retries to begin with, want 10", n)
	}
	for range 26 {
		b.deposit()
	}
	if n := spend(); n != 5 {
		t.Errorf("%d retries for 26 requests, want 5", n)
	}
	for range 1000 {
		b.deposit()
	}
	if n := spend(); n != 10 {
		t.Errorf("%d retries were saved up, want at most 10", n)
	}
}

// A request that has been with a target since before its failures, such as a WebSocket, does not keep it ejected.
func TestHealth_TargetIsTriedBesideALongRequest(t *testing.T) {
	now, h := time.Now(), config.Health{After: 1, Rest: 8 * time.Second}
	p := newTestPool(t, Config{Upstream: config.Upstream{Health: h}}, 1, 1)
	take := func(now time.Time, n int) string {
		t.Helper()
		var all choice
		for range n {
			m, err := p.acquire(t.Context(), now, selection{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		return all.hosts()
	}
	if got := take(now, 2); got != "ab" {
		t.Fatalf("long requests went to %s", got)
	}
	a := p.backends[0]
	a.connectFailed(now, &h, 0)
	if got := take(now, 3); got != "bbb" {
		t.Errorf("went to %s while a is ejected", got)
	}
	now = now.Add(h.Rest)
	if got := take(now, 4); strings.Count(got, "a") != 1 {
		t.Errorf("went to %s; want one that tries a", got)
	}
	if got := take(now.Add(h.Rest), 4); strings.Count(got, "a") != 1 {
		t.Errorf("went to %s; want one more, as nobody knows what became of the first", got)
	}
	a.connectSucceeded(now, &h)
	if got := take(now, 4); strings.Count(got, "a") != 2 {
		t.Errorf("went to %s after a was reached", got)
	}
}
