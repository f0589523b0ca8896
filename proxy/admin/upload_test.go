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
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

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
		Tokens: []Token{{Name: "ann", Text: "looks", Role: Read}},
		Simulate: func(_ context.Context, q SimulateQuery) (Simulation, error) {
			*asked = q
			if q.Log == nil {
				return Simulation{Node: "own"}, nil
			}
			n, err := io.Copy(io.Discard, q.Log)
			if err != nil {
				return Simulation{}, fmt.Errorf("log: %w", err)
			}
			return Simulation{Lines: n}, nil
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
