package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// The bytes in Redis are those of a Redisson RRateLimiter.
func TestKeys_AreRedissons(t *testing.T) {
	s := newClockedTestStore(t)
	c := claim(5, time.Minute, 3)
	d := s.allowed(c, 1)
	const key = "weir:{ad5e24e3b44f13e0d0b8a5cd8a7a0a5b}:sms.phone:w"
	want := strings.Replace(key, "ad5e24e3b44f13e0d0b8a5cd8a7a0a5b", c[0].Key.String(), 1)
	keys := s.do("keys", "weir:*").([]any)
	slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	if got := fmt.Sprint(keys); got != fmt.Sprint([]string{want + ":permits", want + ":value"}) {
		t.Errorf("keys %v", got)
	}
	if got := s.do("get", want+":value"); got != "2" {
		t.Errorf("value %q, want 2", got)
	}
	member := "\x08" + string(d.Permit.ID[:8]) + "\x03\x00\x00\x00"
	got := s.do("zrange", want+":permits", 0, -1, "withscores").([]any)
	if fmt.Sprintf("%x", flat(got)) != fmt.Sprintf("%x", []any{member, 1.8e12}) && flat(got)[0] != member {
		t.Errorf("members %q, want %q", got, member)
	}
	if score := s.do("zscore", want+":permits", member); fmt.Sprint(score) != "1.8e+12" {
		t.Errorf("score %v, want 1800000000000", score)
	}
}

// What has expired leaves the log with the next permit, also if value is by chance what is
// left at a rate that was edited: otherwise value and entries are not the rate until some
// others expire.
func TestKeys_LoseWhatHasExpired(t *testing.T) {
	for how, take := range map[string]func(s *testStore, c []limiter.Claim){
		"one": func(s *testStore, c []limiter.Claim) { s.allowed(c, 1) },
		"many": func(s *testStore, c []limiter.Claim) {
			other := claim(20, time.Minute, 1)
			other[0].Limit.Name = "other"
			s.allowed(append(other, c...), 1)
		},
		"general": func(s *testStore, c []limiter.Claim) {
			s.check(s.store.TakePlain(s.t.Context(), c, new(limiter.Decision)))
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newClockedTestStore(t)
			s.allowed(claim(35, time.Minute, 15), 1) // 20 are left
			s.advance(61 * time.Second)
			c := claim(20, time.Minute, 1)
			take(s, c)
			left, taken, err := kept(s.client, c[0])
			if err != nil || left+taken != 20 {
				t.Errorf("%d left and %d in the entries (%v), want 20 in all", left, taken, err)
			}
		})
	}
}

// flat undoes the pairs of RESP3.
func flat(list []any) (out []any) {
	for _, v := range list {
		if pair, ok := v.([]any); ok {
			out = append(out, pair...)
		} else {
			out = append(out, v)
		}
	}
	return out
}

// Every key lives longer than its last permit is out, and not much longer; that
// holds after takes, refunds and merging, and no key stays for ever.
func TestKeys_LeaveByThemselves(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	ttls := func(c []limiter.Claim) {
		t.Helper()
		window := c[0].Limit.Rate.Window.Milliseconds()
		for _, key := range s.do("keys", "weir:*").([]any) {
			ttl := s.do("pttl", key).(int64)
			if ttl <= window-patient.Milliseconds() || ttl > window+1000 {
				t.Errorf("%v lives %d ms for a window of %d", key, ttl, window)
			}
		}
		s.do("flushall")
	}
	for _, count := range []int64{1, 30, 300} {
		c := claim(count, time.Hour, 1)
		d := s.allowed(c, int(count))
		s.check(s.store.Refund(t.Context(), c, d.Permit))
		ttls(c)
	}
	c := claim(1, time.Hour, 1) // the only member refunded: the set must not be new
	d := s.allowed(c, 1)
	s.check(s.store.Refund(t.Context(), c, d.Permit))
	ttls(c)

	// Short windows, to the end: when all have come back, nothing is there.
	for i := range 20 {
		c := claim(100, 50*time.Millisecond, 1)
		c[0].Key = limiter.KeyOf(fmt.Sprint(i))
		s.allowed(c, 1)
	}
	s.until("no key is left", func() bool { return s.do("dbsize").(int64) == 0 })
}

// A key is small at any rate, also just after it merged.
func TestKeys_StaySmall(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for _, count := range []int64{10, 128, 1000, 100_000} {
		c := claim(count, 100*time.Second, max(1, count/1000))
		c[0].Limit.Name = fmt.Sprint("l", count)
		var members, bytes int64
		for range 400 {
			s.take(c)
			s.advance(400 * time.Millisecond)
			members = max(members, s.do("zcard", name(c)+":permits").(int64))
			bytes = max(bytes, s.do("memory", "usage", name(c)+":permits", "samples", 0).(int64))
		}
		if members > 129 || bytes > 4096 {
			t.Errorf("rate %d: %d members, %d bytes", count, members, bytes)
		}
		t.Logf("rate %d: at most %d members, %d bytes", count, members, bytes)
	}
}

// Peek writes nothing at all: no key, no time to live.
func TestPeek_WritesNothing(t *testing.T) {
	s := newClockedTestStore(t)
	for _, count := range []int64{3, 30, 300} {
		c := claim(count, time.Minute, 1)
		s.left(c, count)
		if n := s.do("dbsize").(int64); n != 1 { // the clock
			t.Fatalf("%d keys after a peek at nothing", n-1)
		}
		s.allowed(c, int(count))
		for _, key := range []string{":value", ":permits", ":base"} {
			s.do("persist", name(c)+key)
		}
		before := s.dump(c)
		s.advance(30 * time.Second)
		s.left(c, 0)
		s.advance(31 * time.Second)
		s.left(c, count)
		if after := s.dump(c); after != before {
			t.Fatalf("peek changed %q to %q", before, after)
		}
		s.do("del", name(c)+":value", name(c)+":permits", name(c)+":base")
	}
}

// dump is all that Redis keeps of a window.
func (s *testStore) dump(c []limiter.Claim) string {
	s.t.Helper()
	var b strings.Builder
	for _, key := range []string{":value", ":permits", ":base"} {
		fmt.Fprintf(&b, "%q %v\n", s.do("dump", name(c)+key), s.do("pttl", name(c)+key))
	}
	return b.String()
}

// Numbers above 2^53 do not come up, and none below is ever written with an
// exponent.
func TestKeys_WriteWholeNumbers(t *testing.T) {
	s := newClockedTestStore(t)
	c := claim(limiter.MaxCount, limiter.MaxWindow, 1)
	s.allowed(c, 1)
	if got := s.do("get", name(c)+":value"); got != "2147483646" {
		t.Errorf("value %q", got)
	}
	s.allowed(c, 19)
	if got := s.do("get", name(c)+":base"); got != "2147483647:1800000000000:1800000000000" {
		t.Errorf("base %q", got)
	}
	c[0].Cost = limiter.MaxCount - 20
	s.allowed(c, 1)
	s.left(c, 0)
	var sum uint64
	for _, m := range s.do("zrange", name(c)+":permits", 0, -1).([]any) {
		sum += uint64(binary.LittleEndian.Uint32([]byte(m.(string)[9:])))
	}
	if sum != limiter.MaxCount {
		t.Errorf("%d permits out, want %d", sum, limiter.MaxCount)
	}
	s.denied(c, limiter.MaxWindow)
}
