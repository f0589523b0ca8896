package view

import (
	"testing"
	"time"
)

func TestDuration_IsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1: "1ms", 250 * time.Millisecond: "250ms", time.Second: "1s", time.Second + 1: "2s", time.Minute: "1m",
		37*time.Minute + 4900*time.Millisecond: "37m5s", time.Hour - 1: "1h", time.Hour: "1h", time.Hour + 1: "1h1m", 90 * time.Minute: "1h30m",
		24 * time.Hour: "1d", 24*time.Hour + 10*time.Minute: "1d10m", 25 * time.Hour: "1d1h", 25*time.Hour + 1: "1d2h", 49 * time.Hour: "2d1h", 14 * 24 * time.Hour: "2w", 366 * 24 * time.Hour: "366d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestAuditEntry_SaysWhatWasDone(t *testing.T) {
	now := time.Unix(1000, 0)
	e := AuditEntry{At: now.Add(-time.Minute), Who: "ann", Action: "plan", For: "30d", Detail: "pro, when redis was back", Reason: "paid"}
	if got, want := e.Done(now), "ann assigned it a plan for 30d (pro, when redis was back), 1m ago (paid)"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestSpan_IsAtMost366d(t *testing.T) {
	var s Span
	if err := s.UnmarshalText([]byte("366d")); err != nil {
		t.Error(err)
	}
	if err := s.UnmarshalText([]byte("367d")); err == nil {
		t.Errorf("367d is %v", s)
	}
}

func TestParseKeyPair_GlobalHasNoValue(t *testing.T) {
	for text, want := range map[string]KeyPair{"global": {"global", ""}, "global=": {"global", ""}, "phone=1=2": {"phone", "1=2"}} {
		if got, err := ParseKeyPair(text); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"phone", "=1", ""} {
		if got, err := ParseKeyPair(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
