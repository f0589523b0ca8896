package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// A configuration is checked on all nodes and then pushed; reloading the page pushes nothing.
func TestConfig_PushesWhatWasChecked(t *testing.T) {
	h := &pushedHistory{back: new(admin.Rollback)}
	o := options()
	o.Cluster = h
	b := open(t, o)
	form := b.form("/dashboard/config", "other", "routes: []\n", "do", "check", "served", "7")
	if p := b.get("/dashboard/config"); strings.Contains(p.text, `value="push"`) {
		t.Error("it can be pushed before it was checked")
	}
	b.post("/dashboard/config/push", form).shows(t, http.StatusOK, "All nodes could serve it. It would change:", "limit sms.phone", "&lt;3/1h&gt;", "node-b: ok", "mind this", `value="push"`, ">routes: []")
	if len(h.pushed) != 1 || !h.pushed[0].DryRun || h.pushed[0].Author != "local" || h.pushed[0].Bundle.Files[h.pushed[0].Bundle.Main] != "routes: []\n" {
		t.Fatalf("pushed %+v; want a dry run of the file", h.pushed)
	}
	form.Set("do", "push")
	redirect, landed := b.follow("/dashboard/config/push", form)
	redirect.shows(t, http.StatusSeeOther)
	landed.shows(t, http.StatusOK, "Done: all nodes serve generation 8")
	if again := b.get(redirect.Header.Get("Location")); strings.Contains(again.text, "Done:") {
		t.Error("reloaded, the page says so again")
	}
	if len(h.pushed) != 2 || h.pushed[1].DryRun {
		t.Errorf("pushed %+v; want one dry run and one push", h.pushed)
	}
	h.refuse = &admin.Problem{Status: http.StatusUnprocessableEntity, Problems: []string{"weir.yaml:1:9: no route", "weir.yaml:2:1: no key"}}
	b.post("/dashboard/config/push", form).shows(t, http.StatusUnprocessableEntity, "nothing was changed: weir.yaml:1:9: no route; weir.yaml:2:1: no key")
	form.Set("do", "check")
	b.post("/dashboard/config/push", form).shows(t, http.StatusUnprocessableEntity, "it cannot be pushed: weir.yaml:1:9: no route", ">routes: []")
	form.Set("other", "")
	b.post("/dashboard/config/push", form).shows(t, http.StatusUnprocessableEntity, "there is no configuration")
}

// Who pushes or rolls back over a push of somebody else is told of it.
func TestConfig_SaysThatSomebodyElseHasPushed(t *testing.T) {
	h := &pushedHistory{back: new(admin.Rollback)}
	o := options()
	o.Cluster = h
	served := view.Config{Generation: 7, Hash: "aaaaaaaaaaaaaaaa"}
	o.Config = func(context.Context) (view.Config, error) { return served, nil }
	b := open(t, o)
	push := b.form("/dashboard/config", "other", "routes: []", "do", "push", "served", "6")
	b.post("/dashboard/config/push", push).shows(t, http.StatusConflict, "nothing was changed: ann pushed generation 7 at")
	b.post("/dashboard/config/rollback", b.form("/dashboard/config", "generation", "5", "served", "6")).shows(t, http.StatusConflict, "ann pushed generation 7 at")
	if len(h.pushed) > 0 || h.back.Generation != 0 {
		t.Errorf("pushed %+v, rolled back to %d; want neither", h.pushed, h.back.Generation)
	}
	served.Generation = 9 // by the file of the node
	b.post("/dashboard/config/push", push).shows(t, http.StatusConflict, "generation 9 is served, after this page was shown")
}

// What is to be pushed is replayed with one click, as the form of Simulate would.
func TestConfig_SimulatesWhatIsToBePushed(t *testing.T) {
	h := &pushedHistory{back: new(admin.Rollback)}
	var asked admin.SimulateQuery
	o := options()
	o.Cluster, o.AccessLog = h, "access.log"
	o.Simulate = func(_ context.Context, q admin.SimulateQuery) (admin.Simulation, error) {
		asked = q
		return admin.Simulation{}, nil
	}
	b := open(t, o)
	b.get("/dashboard/config").shows(t, http.StatusOK, `formaction="/dashboard/simulate"`)
	form := b.form("/dashboard/config")
	b.upload("", "form", form.Get("form"), "session", form.Get("form"), "served", "7", "other", "routes: []", "own_log", "true").shows(t, http.StatusOK)
	if asked.Other != "routes: []" || asked.Log != nil {
		t.Errorf("asked %+v", asked)
	}
}
