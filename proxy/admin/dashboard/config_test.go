package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// A configuration is checked on all nodes and then pushed; reloading the page pushes nothing.
func TestConfig_PushesWhatWasChecked(t *testing.T) {
	h := &pushedHistory{back: new(admin.Rollback)}
	o := options()
	o.Cluster = h
	b := open(t, o)
	form := fields("other", "routes: []\n", "do", "check", "served", "7")
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
	b.post("/dashboard/config/push", form).shows(t, http.StatusUnprocessableEntity, failed("Nothing was changed", "weir.yaml:1:9: no route; weir.yaml:2:1: no key"))
	form.Set("do", "check")
	b.post("/dashboard/config/push", form).shows(t, http.StatusUnprocessableEntity, failed("It cannot be pushed", "weir.yaml:1:9: no route"), ">routes: []")
	form.Set("other", "")
	b.post("/dashboard/config/push", form).shows(t, http.StatusUnprocessableEntity, "there is no configuration")
}

// An operator begins with what is served, unless it has values that are not shown: they must not be pushed as if they
// were real. The secrets of privacy are left out: each node has them in its own file.
func TestConfig_BeginsWithWhatIsServed(t *testing.T) {
	o := options()
	o.Cluster = &pushedHistory{back: new(admin.Rollback)}
	served := "version: 1\nadmin:\n  token: (hidden by weir check --effective)\nprivacy:\n  hash_secret: (hidden by weir check --effective)\n  previous_secret: (the former one, hidden as well)\n  log_client: full\nroutes:\n  - name: sms\n"
	o.Config = func(context.Context) (view.Config, error) { return view.Config{Effective: served}, nil }
	b := open(t, o)
	const link = `href="/dashboard/config?other=served#h-push"`
	if p := b.get("/dashboard/config"); !strings.Contains(p.text, link+">Copy the current configuration</a> and change it: defaults are filled in, comments not kept") || strings.Contains(p.text, "name: sms\n</textarea>") {
		t.Error("what is served is not offered, or written unasked")
	}
	b.get("/dashboard/config?other=served").shows(t, http.StatusOK, ">version: 1\nprivacy:\n  log_client: full\nroutes:\n  - name: sms\n</textarea>")
	for field, hidden := range map[string]string{
		"alerts.webhook":            "alerts:\n  webhook: https://hidden.invalid/\n",
		"jwt.key, lists.a.b.values": "jwt:\n  key: (hidden by weir check --effective)\nkeys:\n  x: y\nlists:\n  a.b:\n    values: [] # 3, not shown\n",
	} {
		served = "version: 1\n" + hidden
		p := b.get("/dashboard/config?other=served")
		p.shows(t, http.StatusOK, "What is served cannot be copied here, as these are not shown: <code>"+field+"</code>", "></textarea>")
		if strings.Contains(p.text, link) {
			t.Errorf("%s is offered", hidden)
		}
	}
}

// Who pushes or rolls back over a push of somebody else is told of it.
func TestConfig_SaysThatSomebodyElseHasPushed(t *testing.T) {
	h := &pushedHistory{back: new(admin.Rollback)}
	o := options()
	o.Cluster = h
	served := view.Config{Generation: 7, Hash: "aaaaaaaaaaaaaaaa"}
	o.Config = func(context.Context) (view.Config, error) { return served, nil }
	b := open(t, o)
	push := fields("other", "routes: []", "do", "push", "served", "6")
	b.post("/dashboard/config/push", push).shows(t, http.StatusConflict, failed("Nothing was changed", "ann pushed generation 7 at"))
	b.post("/dashboard/config/rollback", fields("generation", "5", "served", "6")).shows(t, http.StatusConflict, "ann pushed generation 7 at")
	if len(h.pushed) > 0 || h.back.Generation != 0 {
		t.Errorf("pushed %+v, rolled back to %d; want neither", h.pushed, h.back.Generation)
	}
	served.Generation = 9 // by the file of the node
	b.post("/dashboard/config/push", push).shows(t, http.StatusConflict, "generation 9 is served, after this page was shown")
}

// A copy to simulate with has no placeholder of a secret, which would be another one: the node takes that of its own file.
func TestSimulate_CopiesNoPlaceholderOfASecret(t *testing.T) {
	o := options()
	o.Config = func(context.Context) (view.Config, error) {
		return view.Config{Effective: "privacy:\n  hash_secret: (hidden by weir check --effective)\n  previous_secret: (the former one, hidden as well)\n  log_client: full\nroutes: []\n"}, nil
	}
	open(t, o).get("/dashboard/simulate?other=served").shows(t, http.StatusOK, ">privacy:\n  log_client: full\nroutes: []\n</textarea>")
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
	b.upload("", "served", "7", "other", "routes: []", "own_log", "true").shows(t, http.StatusOK)
	if asked.Other != "routes: []" || asked.Log != nil {
		t.Errorf("asked %+v", asked)
	}
}

// simulatingOptions is a weir that replays logs; asked is what that was asked last.
func simulatingOptions(asked *admin.SimulateQuery) admin.Options {
	o := options()
	o.AccessLog = "/var/log/weir/access.log"
	o.Simulate = func(_ context.Context, q admin.SimulateQuery) (admin.Simulation, error) {
		*asked = q
		if q.Log != nil {
			if _, err := io.Copy(io.Discard, q.Log); err != nil {
				return admin.Simulation{}, fmt.Errorf("log: %w", err)
			}
		}
		limit := proxy.LimitTally{Name: "phone", Key: "phone", Rates: []string{"5/1h"}, Mode: "enforce", Refused: 7, Series: proxy.ReplaySeries{Refused: []int64{3, 4}}, Top: []proxy.ReplayKey{{Key: "+86138****8000", Refused: 7}}}
		s := admin.Simulation{LogCounts: view.LogCounts{Requests: 1234, Lines: 1234}, Notes: []string{"The log does not tell <b>"}, Result: proxy.ReplayTally{Requests: 1234, Refused: 7, Routes: []proxy.RouteTally{{Name: "sms", Refused: 7, Limits: []proxy.LimitTally{limit}}}}}
		if q.Other != "" {
			limit.Refused, limit.Rates = 19, []string{"1/1h"}
			s.Against = &proxy.ReplayTally{Requests: 1234, Refused: 19, Routes: []proxy.RouteTally{{Name: "sms", Limits: []proxy.LimitTally{limit}}}}
			s.Differences = []view.SimulatedDifference{{Route: "sms", Limit: "phone", A: view.SimulatedSide{There: true, Rates: []string{"5/1h"}, Refused: 7}, B: view.SimulatedSide{There: true, Rates: []string{"1/1h"}, Refused: 19}}}
		}
		return s, nil
	}
	return o
}

// upload sends a form with a log as the page would; pairs are its other fields, in order.
func (b *browser) upload(log string, pairs ...string) page {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i+1 < len(pairs); i += 2 {
		form.WriteField(pairs[i], pairs[i+1])
	}
	file, err := form.CreateFormFile("log", "access.log")
	if err != nil {
		b.t.Fatal(err)
	}
	io.WriteString(file, log)
	form.Close()
	r, err := http.NewRequest(http.MethodPost, b.at+"/dashboard/simulate", &body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Header.Set("Origin", b.at)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.send(r)
}

func TestSimulate_ShowsBothSideBySide(t *testing.T) {
	var asked admin.SimulateQuery
	b := open(t, simulatingOptions(&asked))
	b.get("/dashboard/simulate").shows(t, http.StatusOK, "Access log", "/var/log/weir/access.log", "at most 32 MiB", "Choose an access log")
	p := b.upload("a log", "other", "routes: <mine>", "host", "a.example", "fields", " header:X-Phone=phone\n\n uri=path ", "own_log", "false")
	p.shows(t, http.StatusOK, "1\u202f234 requests replayed", "Side by side", "&#43;12", ">19<", "The log does not tell &lt;b&gt;", "&#43;86138****8000", "routes: &lt;mine&gt;", `<svg class="spark"`)
	if asked.Host != "a.example" || strings.Join(asked.Fields, " ") != "header:X-Phone=phone uri=path" || asked.Log == nil {
		t.Errorf("asked %+v", asked)
	}
	b.upload("", "own_log", "true").shows(t, http.StatusOK, "As it is served")
	if asked.Log != nil {
		t.Error("asked for another log than its own")
	}
}

// What is neither passed nor refused is told, too, and what to do is told in words of the page.
func TestSimulate_TellsWhatIsRejected(t *testing.T) {
	var asked admin.SimulateQuery
	o := simulatingOptions(&asked)
	o.Simulate = func(context.Context, admin.SimulateQuery) (admin.Simulation, error) {
		rt := proxy.RouteTally{Name: "sms", Requests: 10, Passed: 6, Refused: 3}
		return admin.Simulation{
			LogCounts: view.LogCounts{Requests: 12}, Result: proxy.ReplayTally{Requests: 12, Passed: 6, Refused: 3, Routes: []proxy.RouteTally{rt}},
			Notes: []string{"the log lacks the host: log it, or set --host NAME", "log it as a JSON field, and name it with --field phone=NAME"},
		}, nil
	}
	b := open(t, o)
	p := b.upload("a log")
	p.shows(t, http.StatusOK, "<dt>Rejected</dt><dd>3</dd>", `<td class="num" data-label="Rejected">1</td>`, "write it into Host of its requests", "name it in Names of fields: phone=NAME")
	if strings.Contains(p.text, "--") {
		t.Error("it speaks of flags of the command line")
	}
}

// What is read of a configuration to begin with is what has to be written of another.
func TestSimulate_BeginsWithWhatIsServed(t *testing.T) {
	var asked admin.SimulateQuery
	o := simulatingOptions(&asked)
	o.Config = func(context.Context) (view.Config, error) {
		return view.Config{Effective: "version: 1\nlisten:\n  http: :8080\nadmin:\n  token: (hidden)\nroutes:\n  - name: sms\nredis: {}\nstore: redis\nkeys: {}\n"}, nil
	}
	p := open(t, o).get("/dashboard/simulate?other=served")
	p.shows(t, http.StatusOK, ">version: 1\nroutes:\n  - name: sms\nkeys: {}\n</textarea>")
}

func TestSimulate_SaysWhyNothingIsReplayed(t *testing.T) {
	var asked admin.SimulateQuery
	b := open(t, simulatingOptions(&asked))
	b.upload("", "other", "kept: 1").shows(t, http.StatusBadRequest, "there is no log; choose a file</p>", "kept: 1")
	b.upload(strings.Repeat("a", admin.MaxLog+1)).shows(t, http.StatusRequestEntityTooLarge, "longer than 32 MiB; send it gzipped, or a part of it</p>")
	r := b.request(http.MethodPost, "/dashboard/simulate", "other=kept")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	b.send(r).shows(t, http.StatusUnsupportedMediaType, "multipart/form-data")
}

// Whoever may look may ask.
func TestSimulate_NeedsASession(t *testing.T) {
	var asked admin.SimulateQuery
	o := simulatingOptions(&asked)
	o.Tokens = []config.Token{{Name: "ann", Text: "reads-and-no-more"}}
	b := open(t, o)
	b.upload("a log").shows(t, http.StatusOK, "Admin token")
	if asked.Log != nil {
		t.Error("replayed all the same")
	}
	b.login("reads-and-no-more")
	b.upload("a log").shows(t, http.StatusOK, "requests replayed")
}
