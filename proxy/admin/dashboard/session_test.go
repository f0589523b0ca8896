package dashboard

import (
	"testing"
	"time"
)

func TestSessions_EndAfterTwelveHours(t *testing.T) {
	s, now := newSessions(), time.Now()
	id := s.add(session{}, now)
	if _, found := s.find(id, now.Add(12*time.Hour-1)); !found {
		t.Error("got no session before its end")
	}
	if _, found := s.find(id, now.Add(12*time.Hour)); found {
		t.Error("got a session after its end")
	}
	if len(s.byID) != 0 || len(s.order) != 0 {
		t.Error("what has ended is kept")
	}
}

func TestSessions_AreBounded(t *testing.T) {
	s, now := newSessions(), time.Now()
	first := s.add(session{}, now)
	second := s.add(session{}, now)
	for range maxSessions - 1 {
		s.add(session{}, now)
	}
	if len(s.byID) != maxSessions || len(s.order) != maxSessions {
		t.Errorf("got %d and %d sessions, want %d", len(s.byID), len(s.order), maxSessions)
	}
	if _, found := s.find(first, now); found {
		t.Error("the oldest is still there")
	}
	if _, found := s.find(second, now); !found {
		t.Error("one that need not go is gone")
	}
}

func TestSessions_FormTokensAreOfOneBrowser(t *testing.T) {
	s := newSessions()
	if s.formToken("a") == s.formToken("b") || s.formToken("a") == newSessions().formToken("a") {
		t.Error("got one token for two")
	}
}

func TestReading_TellsWhatHappenedLately(t *testing.T) {
	at := time.Now()
	then := reading{At: at, Requests: 100, Calls: 10, Seconds: 1}
	now := reading{At: at.Add(10 * time.Second), Requests: 150, Errors: 2, Calls: 20, Seconds: 1.02, CallFails: 1, Fallbacks: 3}
	got := now.since(then)
	want := Rates{Requests: 150, PerSecond: 5, Errors: 2, ErrorsNew: 2, Calls: 10, StoreMS: got.StoreMS, StoreFails: 1, Fallbacks: 3, Over: 10 * time.Second}
	if got != want || got.StoreMS < 1.999 || got.StoreMS > 2.001 {
		t.Errorf("got %+v, want %+v with 2 ms", got, want)
	}
	// What happened before the first look did not happen lately.
	if first := then.since(then); first != (Rates{Requests: 100}) || first.Known() {
		t.Errorf("got %+v of one reading; want the count since the start alone", first)
	}
}

func TestSpan_IsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", 1: "<1 s", time.Second: "1 s", time.Second + 1: "2 s", time.Minute: "1 min 0 s",
		time.Hour - 1: "1 h 0 min", 90 * time.Minute: "1 h 30 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("span(%d): got %q, want %q", d, got, want)
		}
	}
}

func TestCount_SetsThousandsApart(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", -1000: "-1\u202f000", 1234567: "1\u202f234\u202f567"} {
		if got := formatCount(n); got != want {
			t.Errorf("count(%d): got %q, want %q", n, got, want)
		}
	}
}
