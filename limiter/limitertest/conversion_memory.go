package limitertest

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// conversionRenewed: a subject counts until one window after it was confirmed last, and once.
func conversionRenewed(t *testing.T, s *suite) {
	const day = 24 * time.Hour
	l := converting("renewed", 2, 6*time.Minute, 50)
	daily := converting("daily", 2, day, 50)
	daily.Memory = 7 * day
	k, eve := s.key(), s.key()
	s.Advance(day - time.Duration(s.peek(t, claimsOf([]*limiter.Limit{l}, k, eve)).At.UnixMilli())*time.Millisecond%day) // a day and a bucket begin
	confirm := func(l *limiter.Limit, subjects ...limiter.Key) {
		t.Helper()
		for _, subject := range subjects {
			s.allowed([]limiter.Claim{{Limit: l, Key: k, Cost: 1, Value: subject}}, 1)
			s.returns([]*limiter.Limit{l}, subject, 1)
		}
	}
	four := []limiter.Key{s.key(), s.key(), s.key(), s.key()}
	confirm(l, four...)
	s.Advance(4 * time.Minute)
	confirm(l, four...)
	confirm(l, four...)
	s.wantOpen(claimsOf([]*limiter.Limit{l}, k, eve), 0, 6, 4)
	s.Advance(2*time.Minute + time.Second)
	s.wantOpen(claimsOf([]*limiter.Limit{l}, k, eve), 0, 6, 4)
	confirm(l, four[0])
	s.Advance(4*time.Minute - time.Second)
	s.wantOpen(claimsOf([]*limiter.Limit{l}, k, eve), 0, 3, 1)
	s.Advance(2*time.Minute + time.Second)
	s.wantOpen(claimsOf([]*limiter.Limit{l}, k, eve), 0, 2, 0)

	for range 5 { // users who come each day an hour earlier
		confirm(daily, four...)
		s.Advance(day - time.Hour)
		s.wantOpen(claimsOf([]*limiter.Limit{daily}, k, eve), 0, 6, 4)
	}
	s.Advance(2 * day)
	if got := s.status(claimsOf([]*limiter.Limit{daily}, k, eve)); got.Remembered != 2 || got.Confirmed != 0 {
		t.Errorf("%+v; want half of 4 remembered", got)
	}
}

// conversionRemembers: half of the best day's confirmations count in quiet times, as long as the memory lasts.
func conversionRemembers(t *testing.T, s *suite) {
	const day = 24 * time.Hour
	daily, hourly := converting("days:1d", 3, day, 50), converting("days:1h", 3, time.Hour, 50)
	daily.Memory, hourly.Memory = 14*day, 14*day
	limits, k := []*limiter.Limit{daily, hourly}, s.key()
	claims := func(subject limiter.Key) []limiter.Claim { return claimsOf(limits, k, subject) }
	s.Advance(day - time.Duration(s.peek(t, claims(s.key())).At.UnixMilli())*time.Millisecond%day) // a day begins
	confirm := func(n int) {
		t.Helper()
		for range n {
			subject := s.key()
			s.allowed(claims(subject), 1)
			s.returns(limits, subject, 1)
		}
	}
	allowed := func(l *limiter.Limit, n int) {
		t.Helper()
		one := []limiter.Claim{{Limit: l, Key: k, Cost: 1, Value: s.key()}}
		s.allowed(one, n)
		if d := s.take(t, one); d.Allowed {
			t.Fatalf("granted more than %d of %s: %+v", n, l.Name, d)
		}
	}
	confirm(49)
	s.wantOpen(claims(s.key())[1:], 0, 3+49, 49)
	s.Advance(26 * time.Hour)
	confirm(11) // the next day, less than half of the best one
	s.Advance(25 * time.Hour)
	s.wantOpen(claims(s.key())[1:], 0, 3+1, 0)
	if got := s.status(claims(s.key())[:1]); got.Remembered != 24 || got.Confirmed != 0 || got.Allowed != 3+24 {
		t.Fatalf("%+v; want 24 remembered", got)
	}
	allowed(daily, 3+24) // of 49
	allowed(hourly, 3+1) // 49 x 1h / 2d
	s.Advance(25 * time.Hour)
	allowed(hourly, 3+1)
	for range 10 { // a bad day after the other
		s.Advance(25 * time.Hour)
		allowed(daily, 3+24)
	}
	s.Advance(25 * time.Hour) // the 14th day after the best one; that of 11 counts
	allowed(daily, 3+5)
	s.Advance(49 * time.Hour)
	allowed(daily, 3)
	allowed(hourly, 3)
}
