package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// recordingOptions is an admin side that tells what it was asked to do, and by whom.
func recordingOptions(done *[]string) Options {
	note := func(ctx context.Context, what string) {
		who := OperatorOf(ctx)
		*done = append(*done, who.Name+" "+what)
	}
	return Options{
		Audit:  func(context.Context, view.AuditQuery) (view.Audit, error) { return view.Audit{}, nil },
		Config: func(ctx context.Context) (view.Config, error) { note(ctx, "config"); return view.Config{}, nil },
		Reload: func(ctx context.Context) (Reloaded, error) { note(ctx, "reload"); return Reloaded{}, nil },
		Standing: func(ctx context.Context, q view.KeyQuery) (view.KeyStanding, error) {
			note(ctx, fmt.Sprintf("inspect %v", q.Pairs))
			return view.KeyStanding{}, nil
		},
		Change: func(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
			note(ctx, fmt.Sprintf("%s %v %s %d %s", c.Action, c.Pairs, c.For, c.Permits, c.Reason))
			return view.KeyResult{KeyChange: c}, nil
		},
		Outcome: func(ctx context.Context, o proxy.Outcome) (proxy.OutcomeResult, error) {
			note(ctx, fmt.Sprintf("outcome %v", o))
			return proxy.OutcomeResult{}, nil
		},
		Explain: func(ctx context.Context, r view.ExplainRequest) (view.Explanation, error) {
			note(ctx, "explain "+r.URL)
			return view.Explanation{}, nil
		},
	}
}

func TestAPI_KeysAreNamedInTheBody(t *testing.T) {
	pairs := `"pairs": [{"key": "phone", "value": "1"}]`
	for _, c := range []struct{ path, body, want string }{
		{"keys/inspect", "{" + pairs + "}", "local inspect [{phone 1}]"},
		{"keys/reset", "{" + pairs + `, "reason": "she called"}`, "local reset [{phone 1}] 0s 0 she called"},
		{"keys/grant", "{" + pairs + `, "permits": 3}`, "local grant [{phone 1}] 0s 3 "},
		{"keys/ban", "{" + pairs + `, "for": "1h"}`, "local ban [{phone 1}] 1h 0 "},
		{"keys/unban", "{" + pairs + "}", "local unban [{phone 1}] 0s 0 "},
		{"keys/plan", "{" + pairs + `, "plan": "pro", "for": "1h"}`, "local plan [{phone 1}] 1h 0 "},
		{"keys/unplan", "{" + pairs + "}", "local unplan [{phone 1}] 0s 0 "},
		{"explain", `{"method": "GET", "url": "/a"}`, "local explain /a"},
		{"outcomes", `{"key": "phone", "value": "1", "outcome": "verified"}`, "local outcome {phone 1 verified}"},
		{"reload", "", "local reload"},
	} {
		var done []string
		w := adminPost(recordingOptions(&done), "POST", "/api/v1/"+c.path, c.body)
		if w.Code != 200 || len(done) != 1 || strings.ReplaceAll(done[0], " 0ms ", " 0s ") != c.want {
			t.Errorf("%s = %d %s, and did %q; want %q", c.path, w.Code, w.Body, done, c.want)
		}
	}
}

// Whatever is wrong with a question is said in a problem, by its name, and nothing is done.
func TestAPI_BadQuestions(t *testing.T) {
	for _, c := range []struct {
		method, target, body string
		code                 int
		want                 string
	}{
		{"POST", "keys/reset", `{"pears": []}`, 400, `unknown field \"pears\"`},
		{"POST", "keys/reset", `{"pairs": [], "permits": 3}`, 400, `unknown field \"permits\"`},
		{"POST", "keys/ban", `{"pairs": [], "for": "1"}`, 400, "a duration is digits with a unit"},
		{"POST", "keys/reset", `{} {}`, 400, "trailing data"},
		{"POST", "keys/reset", ``, 400, "there is no body"},
		{"POST", "explain", `{"body": "` + strings.Repeat("a", maxBody) + `"}`, 413, "longer than"},
		{"GET", "keys/reset", "", 405, "use POST"},
		{"DELETE", "config", "", 405, "use GET"},
		{"GET", "keys", "", 404, "openapi.json"},
		{"GET", "config?key=phone:1", "", 400, `no parameter \"key\"; leave it out`},
		{"GET", "statistics?minutes=1&minutes=2", "", 400, "minutes is there twice"},
		{"GET", "statistics?minute=1", "", 400, "write one of minutes"},
	} {
		var done []string
		w := adminPost(recordingOptions(&done), c.method, "/api/v1/"+c.target, c.body)
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.code || p.Status != c.code || !strings.Contains(w.Body.String(), c.want) || len(done) > 0 {
			t.Errorf("%s %s = %d %s, and did %v; want %d and %q", c.method, c.target, w.Code, w.Body, done, c.code, c.want)
		}
		if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s %s: Content-Type = %q", c.method, c.target, got)
		}
		if c.code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.target)
		}
	}
}

func TestAPI_DecisionsTakeAllParameters(t *testing.T) {
	var got view.DecisionQuery
	o := Options{Decisions: func(_ context.Context, q view.DecisionQuery) (view.Decisions, error) {
		got = q
		return view.Decisions{}, nil
	}}
	w := adminRequest(o, "GET", "/api/v1/decisions?request_id=a&route=b&limit=c&outcome=refused&key=d&n=7&before=2026-01-31T09:30:00Z")
	want := view.DecisionQuery{RequestID: "a", Route: "b", Limit: "c", Outcome: "refused", Key: "d", Before: time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC), N: 7}
	if w.Code != 200 || got != want {
		t.Errorf("decisions = %d for %+v; want %+v", w.Code, got, want)
	}
	for _, query := range []string{"outcome=lost", "n=0", "n=1001", "before=yesterday"} {
		if w := adminRequest(o, "GET", "/api/v1/decisions?"+query); w.Code != 400 {
			t.Errorf("decisions?%s = %d; want 400", query, w.Code)
		}
	}
}

// What is wrong with a question is the asker's fault; a store that is away is not.
func TestAPI_ErrorsHaveTheirStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   int
		detail string
	}{
		{fmt.Errorf("%w: write KEY=VALUE", view.ErrKeyQuery), 400, "write KEY=VALUE"},
		{fmt.Errorf("%w: an empty URL", proxy.ErrExplain), 400, "an empty URL"},
		{errors.New("redis is away"), 503, "redis is away"},
	} {
		trail := func(context.Context, view.AuditQuery) (view.Audit, error) { return view.Audit{}, nil }
		o := Options{Audit: trail, Standing: func(context.Context, view.KeyQuery) (view.KeyStanding, error) {
			return view.KeyStanding{}, c.err
		}}
		w := adminPost(o, "POST", "/api/v1/keys/inspect", "{}")
		if w.Code != c.code || !strings.Contains(w.Body.String(), `"detail":"`+c.detail+`"`) {
			t.Errorf("%v = %d %s; want %d %q", c.err, w.Code, w.Body, c.code, c.detail)
		}
	}
}

// Each token may do what its role says, in the name of its operator.
func TestAllow_ByRole(t *testing.T) {
	var done []string
	o := recordingOptions(&done)
	o.Token = "of the admin"
	o.Tokens = []config.Token{{Name: "ops", Text: "of ops", Write: true}, {Name: "support", Text: "of support"}}
	for _, c := range []struct {
		method, target, token string
		code                  int
		did                   string
	}{
		{"GET", "/api/v1/config", "of the admin", 200, "admin config"},
		{"GET", "/api/v1/config", "of ops", 200, "ops config"},
		{"GET", "/api/v1/config", "of support", 200, "support config"},
		{"GET", "/api/v1/config", "of nobody", 401, ""},
		{"GET", "/api/v1/config", "", 401, ""},
		{"POST", "/api/v1/reload", "of ops", 200, "ops reload"},
		{"POST", "/api/v1/reload", "of support", 403, ""},
		{"POST", "/reload", "of support", 403, ""},
		{"POST", "/reload", "of the admin", 200, "admin reload"},
		{"GET", "/debug/pprof/cmdline", "of support", 403, ""},
		{"GET", "/debug/pprof/cmdline", "of ops", 200, ""},
		{"GET", "/api/v1/openapi.json", "", 401, ""},
		{"GET", "/api/v1/openapi.json", "of support", 200, ""},
	} {
		done = nil
		w := adminRequest(o, c.method, c.target, "Authorization: Bearer "+c.token)
		if w.Code != c.code || strings.Join(done, ", ") != c.did {
			t.Errorf("%s %s with %q = %d, and did %q; want %d and %q", c.method, c.target, c.token, w.Code, done, c.code, c.did)
		}
	}
}

// With a token for one operator nobody passes without one, as with Options.Token.
func TestAllow_OneOperatorEndsTheLocalRule(t *testing.T) {
	var done []string
	o := recordingOptions(&done)
	o.Tokens = []config.Token{{Name: "support", Text: "of support"}}
	if w := adminRequest(o, "POST", "/api/v1/reload"); w.Code != 401 || len(done) > 0 {
		t.Errorf("reload without a token = %d, and did %v; want 401", w.Code, done)
	}
	if w := adminRequest(o, "GET", "/api/v1/config", "Host: weir.internal", "Authorization: Bearer of support"); w.Code != 200 {
		t.Errorf("with a token any name of this machine is answered; got %d", w.Code)
	}
}

// The document has each operation once, with a name of its own.
func TestOpenAPI_NamesEachOperationOnce(t *testing.T) {
	names := map[string]bool{}
	for _, e := range (Options{}).endpoints() {
		if names[e.id()] || e.summary == "" {
			t.Errorf("%s %s is called %s, which is there twice, or has no summary", e.method, e.path, e.id())
		}
		names[e.id()] = true
	}
	w := adminRequest(Options{}, "GET", "/api/v1/openapi.json")
	var d struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != 200 {
		t.Fatalf("openapi.json = %d, %v", w.Code, err)
	}
	count := 0
	for _, methods := range d.Paths {
		count += len(methods)
	}
	if count != len(names) {
		t.Errorf("the document has %d operations, and the table %d", count, len(names))
	}
}

func TestEvents_TellWhatIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted atomic.Int64
		counted.Store(5)
		e := NewEvents(func() map[proxy.Series]int64 {
			return map[proxy.Series]int64{{Route: "a"}: counted.Load(), {Route: "b"}: 0}
		})
		ctx, cancel := context.WithCancel(t.Context())
		go e.Run(ctx)
		events, leave, err := e.subscribe()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		counted.Store(8)
		if one := <-events; one.Type != EventStatistics || len(one.Counts) != 1 || one.Counts[0].N != 3 {
			t.Errorf("after a second the event is %+v; want 3 more of a", one)
		}
		e.Publish(Event{Type: EventReload, Generation: 2})
		if one := <-events; one.Type != EventReload || one.Generation != 2 {
			t.Errorf("got %+v; want the reload", one)
		}
		leave()
		synctest.Wait()
		again, _, err := e.subscribe() // after nobody has listened
		if err != nil {
			t.Fatal(err)
		}
		if one := <-again; one.Type != EventStatistics || len(one.Counts) != 0 {
			t.Errorf("who comes later is told %+v; want what has happened since", one)
		}
		cancel()
		if _, open := <-again; open {
			t.Error("the stream goes on after the end")
		}
		if _, _, err := e.subscribe(); !errors.Is(err, errEnding) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestEvents_AreBounded(t *testing.T) {
	e := NewEvents(func() map[proxy.Series]int64 { return nil })
	slow, _, err := e.subscribe()
	if err != nil {
		t.Fatal(err)
	}
	for range maxSubscribers - 1 {
		if _, _, err := e.subscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := e.subscribe(); !errors.Is(err, errTooManySubscribers) {
		t.Errorf("one more than %d: %v", maxSubscribers, err)
	}
	for range subscriberBuffer + 1 {
		e.Publish(Event{Type: EventKey})
	}
	got := 0
	for range slow {
		got++
	}
	if got != subscriberBuffer {
		t.Errorf("who does not listen is told %d events and cut off; want %d", got, subscriberBuffer)
	}
	if _, _, err := e.subscribe(); err != nil {
		t.Errorf("after those were cut off: %v", err)
	}
}

// A stream begins at once, and ends when events do.
func TestEvents_AsAStream(t *testing.T) {
	e := NewEvents(func() map[proxy.Series]int64 { return nil })
	s := httptest.NewServer(New(Options{Events: e, Gatherer: prometheus.NewRegistry()}))
	defer s.Close()
	answer, err := http.Get(s.URL + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	e.Publish(Event{Type: EventKey, Action: "reset"})
	lines := bufio.NewScanner(answer.Body)
	lines.Scan()
	if lines.Text() != "event: key" {
		t.Errorf("the first line is %q", lines.Text())
	}
	lines.Scan()
	if !strings.HasPrefix(lines.Text(), `data: {"type":"key"`) {
		t.Errorf("the second line is %q", lines.Text())
	}
	e.end()
	for lines.Scan() { // to the end
		if lines.Text() != "" {
			t.Errorf("after the end: %q", lines.Text())
		}
	}
}
