package cluster

import (
	"testing"
	"time"
)

func TestDrift_IsToldOnceItLasts(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	var d driftTracker
	for _, row := range []struct {
		at     time.Duration
		others int
		told   int
		news   bool
	}{
		{0, 0, 0, false},
		{2 * time.Second, 1, 0, false}, // a reload is under way
		{4 * time.Second, 0, 0, false},
		{6 * time.Second, 1, 0, false},
		{6*time.Second + driftAfter - 1, 1, 0, false},
		{6*time.Second + driftAfter, 1, 1, true},
		{8*time.Second + driftAfter, 1, 1, false}, // once
		{9*time.Second + driftAfter, 3, 3, true},
		{10*time.Second + driftAfter, 0, 0, true},
		{11*time.Second + driftAfter, 2, 0, false}, // from the beginning
	} {
		if told, news := d.note(begin.Add(row.at), row.others); told != row.told || news != row.news {
			t.Errorf("at %v with %d others: told of %d, news %v; want %d, %v", row.at, row.others, told, news, row.told, row.news)
		}
	}
}

func TestReachable_IsTheMachineForAWildcard(t *testing.T) {
	for _, address := range []string{"127.0.0.1:9901", "10.0.0.1:9901", "[2001:db8::1]:9901", ""} {
		if got := externalAddress(address); got != address {
			t.Errorf("%q is reached at %q; want as it is", address, got)
		}
	}
	for _, address := range []string{":9901", "0.0.0.0:9901", "[::]:9901"} {
		if got := externalAddress(address); got == address || got[len(got)-5:] != ":9901" {
			t.Errorf("%q is reached at %q; want the machine's name", address, got)
		}
	}
}
