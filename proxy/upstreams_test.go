package proxy

import (
	"slices"
	"testing"
)

// What operators read of upstreams is what has happened to requests.
func TestUpstreams_TellWhatHappened(t *testing.T) {
	dead := closedURL(t)
	w := newProxy(t, poolYAML("health: {after: 1}, retries: 0", dead, startNamedBackend(t, "b")))
	for range 4 {
		w.send("GET", "/a")
	}
	all := w.Upstreams()
	if len(all) != 1 || all[0].Name != "u" || !slices.Equal(all[0].Routes, []string{"a"}) || all[0].Balance != "round_robin" || all[0].Protocol != "http1" || len(all[0].Targets) != 2 {
		t.Fatalf("upstreams = %+v", all)
	}
	a, b := all[0].Targets[0], all[0].Targets[1]
	if a.Target != dead || a.State != "ejected" || a.Requests != 1 || a.Errors != 1 || a.Results["connect"] != 1 || a.FailedConnects != 1 || a.EjectedUntil.IsZero() {
		t.Errorf("the target that is gone: %+v", a)
	}
	if b.State != "healthy" || b.Requests != 3 || b.Errors != 0 || b.Results["ok"] != 3 || b.InFlight != 0 || b.Share != 1 {
		t.Errorf("the target that answers: %+v", b)
	}
}
