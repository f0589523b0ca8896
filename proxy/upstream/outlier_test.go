package upstream

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/stripe"
)

func TestHealth_EjectsAfterConsecutiveFailures(t *testing.T) {
	now := time.Now()
	h := Health{FailureThreshold: 2, EjectFor: 8 * time.Second, SlowStart: time.Minute}
	s := targetHealth{inFlight: stripe.NewUsers(1)}
	s.connectFailed(now, &h, 0)
	s.connectSucceeded(now, &h)
	s.connectFailed(now, &h, 0)
	if s.ejected(now, &h) || !s.recoveredAt.IsZero() {
		t.Fatal("tired after failures that were not in a row")
	}
	s.connectFailed(now, &h, 0.5)
	for after, want := range map[time.Duration]bool{0: true, 8 * time.Second: true, 9*time.Second - 1: true, 9 * time.Second: false} {
		if got := s.ejected(now.Add(after), &h); got != want {
			t.Errorf("%v later tired is %v, want %v: it rests 8 s and half of a quarter", after, got, want)
		}
	}
	later := now.Add(time.Minute)
	s.inFlight.Add(0, 1)
	if !s.ejected(later, &h) {
		t.Error("a second request goes there before the first has found out")
	}
	s.connectFailed(later, &h, 0)
	s.inFlight.Add(0, -1)
	if !s.ejected(later, &h) {
		t.Error("one more failure after the rest is no reason to rest again")
	}
	s.connectSucceeded(later, &h)
	if s.ejected(later, &h) || !s.recoveredAt.Equal(later) {
		t.Error("it was reached and still rests, or does not start slowly")
	}
}

func TestHealth_NeverEjectsWhenDisabled(t *testing.T) {
	var s targetHealth
	for range 100 {
		s.connectFailed(time.Now(), &Health{}, 1)
	}
	if s.ejected(time.Now(), &Health{}) || s.slowStartFactor(time.Now(), &Health{}) != 1 {
		t.Error("the zero Health leaves a target alone")
	}
}

func TestHealth_ActiveChecks(t *testing.T) {
	now := time.Now()
	h := Health{FailureThreshold: 2, EjectFor: time.Hour}
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
	if s.ejected(now, &h) {
		t.Error("a good look does not end a rest")
	}
}

func TestHealth_SlowStartFactorIsPositive(t *testing.T) {
	now := time.Now()
	h := Health{SlowStart: 10 * time.Second}
	s := targetHealth{recoveredAt: now}
	for after, want := range map[time.Duration]float64{-time.Second: 0.1, 0: 0.1, 5 * time.Second: 0.5, 10 * time.Second: 1, time.Hour: 1} {
		if got := s.slowStartFactor(now.Add(after), &h); got != want {
			t.Errorf("share %v later is %v, want %v", after, got, want)
		}
	}
}

func TestRetryBudget_RatioAndReserve(t *testing.T) {
	b := newRetryBudget()
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
