package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

// startAdmin is a client of an admin side with these options.
func startAdmin(t *testing.T, o Options) Client {
	t.Helper()
	o.Gatherer = prometheus.NewRegistry()
	s := httptest.NewServer(New(o))
	t.Cleanup(s.Close)
	return Client{Address: strings.TrimPrefix(s.URL, "http://"), Token: o.Token}
}

// What a client reads is what the server's functions return, whole.
func TestClient_ReadsWhatIsAnswered(t *testing.T) {
	c := startAdmin(t, Options{Token: "sixteen characters", Cluster: failingPusher{}, Plan: planOf})
	bundle := bundle.Bundle{Main: "a", Files: map[string]string{"a": "b"}}
	push := Push{Bundle: bundle, Author: "ann", DryRun: true}
	pushed, err := Post[Pushed](t.Context(), c, "/push", push)
	want, _ := failingPusher{}.Push(t.Context(), push)
	if err != nil || !reflect.DeepEqual(pushed, want) {
		t.Errorf("push = %+v, %v; want %+v", pushed, err, want)
	}
	back, err := Post[Pushed](t.Context(), c, "/rollback", Rollback{Generation: 3, Author: "ann"})
	want, _ = failingPusher{}.Rollback(t.Context(), Rollback{Generation: 3, Author: "ann"})
	if err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("rollback = %+v, %v; want %+v", back, err, want)
	}
	if p, err := Post[Plan](t.Context(), c, "/plan", push); err != nil || p.Restart != "a" {
		t.Errorf("plan = %+v, %v", p, err)
	}
	if h, err := Get[History](t.Context(), c, "/history"); err != nil || len(h.History) != 1 || h.History[0].Author != "ann" {
		t.Errorf("history = %+v, %v", h, err)
	}
	if d, err := Get[Diff](t.Context(), c, "/history/7"); err != nil || d.Generation != 7 || d.Diff != "- a" {
		t.Errorf("diff = %+v, %v", d, err)
	}
	if err := c.Healthz(t.Context()); err != nil {
		t.Error(err)
	}
}

// A refusal is a Problem with all the facts that the server gave it.
func TestClient_RefusalsAreProblems(t *testing.T) {
	problems := config.Problems{{Position: config.Position{File: "a", Line: 1, Column: 2}, What: "wrong"}}
	for _, row := range []struct {
		err  error
		want Problem
	}{
		{&Problem{Status: 409, Detail: "ann pushes", Author: "ann", Node: "n"}, Problem{Status: 409, Title: "Conflict", Detail: "ann pushes", Author: "ann", Node: "n"}},
		{&Problem{Status: 409, Detail: "no", Nodes: []view.NodeAnswer{{Node: "n", Said: "cannot"}}}, Problem{Status: 409, Title: "Conflict", Detail: "no", Nodes: []view.NodeAnswer{{Node: "n", Said: "cannot"}}}},
		{problems, Problem{Status: 422, Title: "Unprocessable Entity", Detail: "a:1:2: wrong", Problems: []string{"a:1:2: wrong"}}},
		{errors.New("redis is away"), Problem{Status: 503, Title: "Service Unavailable", Detail: "redis is away"}},
	} {
		_, err := Post[Pushed](t.Context(), startAdmin(t, Options{Cluster: failingPusher{row.err}}), "/push", Push{})
		row.want.Type = "about:blank"
		var got *Problem
		if !errors.As(err, &got) || !reflect.DeepEqual(*got, row.want) {
			t.Errorf("push that fails with %v: %#v; want %+v", row.err, err, row.want)
		}
	}
	c := startAdmin(t, Options{Token: "sixteen characters"})
	c.Token = "guess"
	var got *Problem
	if _, err := Get[History](t.Context(), c, "/history"); !errors.As(err, &got) || got.Status != 401 {
		t.Errorf("with another token: %v; want 401", err)
	}
}

// Of an address without a port it is said that the port is missing.
func TestClient_WithoutAPort(t *testing.T) {
	nobody := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	for address, want := range map[string]string{
		"127.0.0.1":       "no weir answers at http://127.0.0.1: connection refused; write the port of its admin listener, too: --admin HOST:PORT",
		"https://w.test/": "no weir answers at https://w.test: connection refused; write the port of its admin listener, too: --admin HOST:PORT",
		"127.0.0.1:9":     "no weir answers at http://127.0.0.1:9: connection refused; name its admin listener with --admin",
	} {
		c := Client{Address: address, Flag: "--admin", HTTP: &http.Client{Transport: nobody}}
		if err := c.Healthz(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", address, err, want)
		}
	}
}

// A push whose connection ends before its answer may have been done: only what was not sent, or changes nothing, is nobody's.
func TestClient_AnAnswerThatIsLost(t *testing.T) {
	ending := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(ending.Close)
	c := Client{Address: ending.URL, Flag: "--admin"}
	_, err := Post[Pushed](t.Context(), c, "/push", Push{})
	if want := "the answer of " + ending.URL + " is lost: EOF; what was asked for may have been done"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
	_, asked := Get[Nodes](t.Context(), c, "/nodes")
	ending.Close()
	_, err = Post[Pushed](t.Context(), c, "/push", Push{})
	for _, err := range []error{asked, err} {
		if err == nil || !strings.HasPrefix(err.Error(), "no weir answers") {
			t.Errorf("%v; want that no weir answers", err)
		}
	}
}

// A roundTrip answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// What is no weir, or nothing at all, is said in one sentence that tells what to do.
func TestClient_WhereNoWeirIs(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/plan" {
			w.Write([]byte("<html>"))
			return
		}
		if r.URL.Path == "/api/v1/nodes" { // as the listener for requests does
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"type":"about:blank","title":"Not Found","status":404}`))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(page.Close)
	c := Client{Address: page.URL + "/"}
	if _, err := Get[History](t.Context(), c, "/history"); err == nil || !strings.Contains(err.Error(), "404 Not Found; is this its admin listener?") {
		t.Errorf("history of a web page: %v", err)
	}
	if _, err := Get[Nodes](t.Context(), c, "/nodes"); err == nil || !strings.Contains(err.Error(), "404 Not Found; is this its admin listener?") {
		t.Errorf("nodes of the listener for requests: %v", err)
	}
	if _, err := Post[Plan](t.Context(), c, "/plan", Push{}); err == nil || !strings.Contains(err.Error(), "not understood") {
		t.Errorf("plan of a web page: %v", err)
	}
	if err := c.Healthz(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("healthz of a web page: %v", err)
	}
	c = Client{Flag: "--admin", Address: "127.0.0.1:1"}
	if _, err := Get[History](t.Context(), c, "/history"); err == nil || !strings.Contains(err.Error(), "--admin") {
		t.Errorf("history of nobody: %v; want what to write", err)
	}
	c = Client{Address: "%"}
	if _, err := Get[History](t.Context(), c, "/history"); err == nil {
		t.Error("an address that is none: no error")
	}
	if c.Healthz(t.Context()) == nil {
		t.Error("an address that is none lives")
	}
}

func TestClient_BaseOfAnAddress(t *testing.T) {
	for addr, want := range map[string]string{
		":9901": "http://localhost:9901", "0.0.0.0:9901": "http://localhost:9901", "[::]:9901": "http://localhost:9901",
		"10.0.0.1:9901": "http://10.0.0.1:9901", "weir.example:9901": "http://weir.example:9901",
		"https://weir.example/": "https://weir.example", "https://weir.example/ops": "https://weir.example/ops",
	} {
		if got := (Client{Address: addr}).base(); got != want {
			t.Errorf("%s: %s; want %s", addr, got, want)
		}
	}
}

// A part is one of a form: NAME and what it says.
type part struct{ name, text string }

// postForm sends a form to an admin side that replays logs; told is what that was asked.
func postForm(t *testing.T, o Options, parts ...part) *httptest.ResponseRecorder {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for _, p := range parts {
		create := form.CreateFormField
		if p.name == "log" {
			create = func(name string) (io.Writer, error) { return form.CreateFormFile(name, "access.log") }
		}
		w, err := create(p.name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, p.text)
	}
	form.Close()
	o.Gatherer = prometheus.NewRegistry()
	r := httptest.NewRequest(http.MethodPost, "/api/v1/simulate", &b)
	r.Host = "127.0.0.1:9901"
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Header.Set("Authorization", "Bearer looks")
	w := httptest.NewRecorder()
	New(o).ServeHTTP(w, r)
	if rest, _ := io.Copy(io.Discard, &b); rest != 0 && w.Code != http.StatusNotFound {
		t.Errorf("%d bytes were left unread, with which browsers show no answer", rest)
	}
	return w
}

// simulatingOptions is an admin side that counts the bytes of a log.
func simulatingOptions(asked *SimulateQuery) Options {
	return Options{
		Tokens: []config.Token{{Name: "ann", Text: "looks"}},
		Simulate: func(_ context.Context, q SimulateQuery) (Simulation, error) {
			*asked = q
			if q.Log == nil {
				return Simulation{Node: "own"}, nil
			}
			n, err := io.Copy(io.Discard, q.Log)
			if err != nil {
				return Simulation{}, fmt.Errorf("log: %w", err)
			}
			return Simulation{LogCounts: view.LogCounts{Lines: n}}, nil
		},
	}
}

// Whoever may look may ask: it changes nothing.
func TestSimulate_ReadsTheFormUpToTheLog(t *testing.T) {
	var asked SimulateQuery
	w := postForm(t, simulatingOptions(&asked), part{"other", "routes: []"}, part{"host", " a.example "}, part{"field", "a=b"}, part{"field", "c=d"}, part{"top", "3"}, part{"log", "12345"})
	var got Simulation
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || got.Lines != 5 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if asked.Other != "routes: []" || asked.Host != "a.example" || len(asked.Fields) != 2 || asked.Fields[1] != "c=d" || asked.Top != 3 {
		t.Errorf("asked %+v", asked)
	}
	if w := postForm(t, simulatingOptions(&asked), part{"own_log", "true"}, part{"log", ""}); w.Code != http.StatusOK || asked.Log != nil {
		t.Errorf("its own log: got %d %s", w.Code, w.Body)
	}
}

func TestSimulate_SaysWhatIsWrongWithTheForm(t *testing.T) {
	busy := Options{Simulate: func(context.Context, SimulateQuery) (Simulation, error) {
		return Simulation{}, &Problem{Status: http.StatusTooManyRequests, Detail: "another log is being replayed"}
	}, Token: "looks"}
	var asked SimulateQuery
	long := strings.Repeat("a", MaxLog)
	for _, c := range []struct {
		name   string
		o      Options
		parts  []part
		status int
		says   string
	}{
		{"no log", simulatingOptions(&asked), []part{{"host", "a"}}, http.StatusBadRequest, "there is no log"},
		{"no file chosen", simulatingOptions(&asked), []part{{"log", ""}}, http.StatusBadRequest, "there is no log"},
		{"an unknown part", simulatingOptions(&asked), []part{{"colour", "a"}, {"log", "a"}}, http.StatusBadRequest, `there is no part "colour"; write one of other, host, field, top, own_log, and log as the last`},
		{"one twice", simulatingOptions(&asked), []part{{"host", "a"}, {"host", "b"}, {"log", "a"}}, http.StatusBadRequest, "host is there twice"},
		{"no number", simulatingOptions(&asked), []part{{"top", "-1"}, {"log", "a"}}, http.StatusBadRequest, "write 0 to 1000"},
		{"neither true nor false", simulatingOptions(&asked), []part{{"own_log", "maybe"}, {"log", "a"}}, http.StatusBadRequest, "true or false"},
		{"something behind the log", simulatingOptions(&asked), []part{{"log", "a"}, {"other", "b"}}, http.StatusBadRequest, "other stands behind the log"},
		{"a long log", simulatingOptions(&asked), []part{{"log", long + "a"}}, http.StatusRequestEntityTooLarge, "longer than 32 MiB"},
		{"as long as it may be", simulatingOptions(&asked), []part{{"log", long}}, http.StatusOK, `"lines":33554432`},
		{"a long configuration", simulatingOptions(&asked), []part{{"other", strings.Repeat("a", maxFields+1)}, {"log", "a"}}, http.StatusRequestEntityTooLarge, "before the log"},
		{"while another is replayed", busy, []part{{"log", long}}, http.StatusTooManyRequests, "another log is being replayed"},
	} {
		w := postForm(t, c.o, c.parts...)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) && !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), c.says) {
			t.Errorf("%s: got %d %.300s; want %d and %s", c.name, w.Code, w.Body, c.status, c.says)
		}
		if kind := w.Header().Get("Content-Type"); c.status != http.StatusOK && kind != "application/problem+json" {
			t.Errorf("%s: got %s", c.name, kind)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/api/v1/simulate", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer looks")
	w := httptest.NewRecorder()
	o := simulatingOptions(&asked)
	o.Gatherer = prometheus.NewRegistry()
	if New(o).ServeHTTP(w, r); w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("JSON: got %d %s", w.Code, w.Body)
	}
}

// Of a log that is malformed, the answer says so, whatever else comes.
func TestSimulate_TellsOfTheFirstError(t *testing.T) {
	o := Options{Token: "looks", Simulate: func(context.Context, SimulateQuery) (Simulation, error) {
		return Simulation{}, errors.New("redis is away")
	}}
	if w := postForm(t, o, part{"log", "a"}, part{"other", "b"}); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "redis is away") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
