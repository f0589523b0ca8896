package upstream

import (
	"testing"
	"testing/synctest"
	"time"
)

// A target goes through all conditions, and tells what it works on.
func TestTargetStatuses_OfRecoveringTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Health{FailureThreshold: 2, EjectFor: 10 * time.Second, SlowStart: 10 * time.Second, Path: "/", Interval: time.Second, Timeout: time.Second}
		p := newTestPool(t, Config{Health: h, MaxConnections: 1, Queue: Queue{Length: 1, Timeout: time.Minute}}, 2)
		is := func(want Condition) TargetStatus {
			t.Helper()
			all, _ := p.TargetStatuses()
			if len(all) != 1 || all[0].Condition != want || all[0].Target != "http://a" || all[0].Weight != 2 {
				t.Fatalf("standings are %+v, want %s", all, want)
			}
			return all[0]
		}
		m := p.backends[0]
		is(Healthy)
		p.group.recordConnect(m, &h, false)
		if s := is(Healthy); s.FailedConnects != 1 {
			t.Errorf("after a failure %+v", s)
		}
		p.group.recordConnect(m, &h, false)
		if s := is(Ejected); !s.EjectedUntil.After(time.Now()) {
			t.Errorf("ejected until %v", s.EjectedUntil)
		}
		time.Sleep(13 * time.Second) // a quarter longer at most
		if s := is(Probing); !s.EjectedUntil.IsZero() {
			t.Errorf("a target that may be asked is ejected until %v", s.EjectedUntil)
		}
		p.group.recordConnect(m, &h, true)
		if s := is(SlowStart); s.Share >= 1 || s.FailedConnects != 0 {
			t.Errorf("back with %+v, want a part of its share", s)
		}
		time.Sleep(10 * time.Second)
		is(Healthy)
		p.group.recordCheck(m, &h, false)
		p.group.recordCheck(m, &h, false)
		if s := is(Unhealthy); s.FailedChecks != 2 {
			t.Errorf("after two bad checks %+v", s)
		}
		p.group.recordCheck(m, &h, true)
		if _, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil {
			t.Fatal(err)
		}
		go p.acquire(t.Context(), time.Now(), selection{})
		synctest.Wait()
		if all, waiting := p.TargetStatuses(); all[0].InFlight != 1 || waiting != 1 {
			t.Errorf("standings are %+v with %d waiting, want one request under way and one that waits", all, waiting)
		}
		p.group.release(m, 0)
		synctest.Wait()
	})
}
