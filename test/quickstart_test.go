package test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// example is config.example.yaml with free ports in the place of its own.
func example(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, port := range []string{`":8080"`, `"127.0.0.1:9901"`} {
		if strings.Count(text, port) != 1 {
			t.Fatalf("config.example.yaml names %s %d times, want once", port, strings.Count(text, port))
		}
		text = strings.Replace(text, port, `"127.0.0.1:0"`, 1)
	}
	return text
}

func TestQuickStart_ServesTheExampleWithoutRedis(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.example.yaml"), example(t))
	began := time.Now()
	w := startWith(t, dir) // no arguments at all
	t.Logf("ready after %v", time.Since(began))

	phone := http.Header{"X-Phone": {"+86 138 0013 8000"}}
	if status, _, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", phone); status != http.StatusOK {
		t.Fatalf("first answer is %d %s, want 200", status, body)
	}
	status, header, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", phone)
	if status != http.StatusTooManyRequests {
		t.Fatalf("second answer is %d %s, want 429", status, body)
	}
	if after, err := strconv.Atoi(header.Get("Retry-After")); err != nil || after < 1 || after > 70 {
		t.Errorf("Retry-After is %q, want 1 to 60 seconds and a little more", header.Get("Retry-After"))
	}
	if got := header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %q", got)
	}
	for _, spelling := range []string{"+8613800138000", "+86-138-0013-8000", "86 13800138000", " (+86) 138 00138000 "} {
		if got := w.send(spelling); got != http.StatusTooManyRequests {
			t.Errorf("the same phone written %q is answered %d, want 429", spelling, got)
		}
	}
	if got := w.send("+86 138 0013 8001"); got != http.StatusOK {
		t.Errorf("another phone is answered %d, want 200", got)
	}
}

func TestQuickStart_ReadsWeirYAMLFirst(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.example.yaml"), example(t))
	write(t, filepath.Join(dir, "weir.yaml"), "routes:\n  - {match: {path: /mine}, upstream: echo}\nupstreams: {echo: echo}\n"+tail)
	w := startWith(t, dir, "run")
	if status, body := w.get(w.URL + "/mine"); status != http.StatusOK {
		t.Errorf("weir.yaml's route is answered %d %s, want 200", status, body)
	}
	if got := w.send("1"); got != http.StatusNotFound {
		t.Errorf("config.example.yaml's route is answered %d, want 404", got)
	}
}

// The few lines with which most operators begin.
func TestQuickStart_SixLines(t *testing.T) {
	api := backend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	w := start(t, `routes:
  - match: {path: /v1/sms/send}
    upstream: `+api.URL+`
    limits:
      - {key: "header:X-Phone", rate: 1/60s}
`)
	if got := w.statuses("1", 2); got[0] != http.StatusAccepted || got[1] != http.StatusTooManyRequests {
		t.Errorf("answers are %v, want 202 and 429", got)
	}
	if status, body := do(t, http.MethodPost, w.URL+"/v1/sms/send", nil); status != http.StatusBadRequest {
		t.Errorf("a request without the key is answered %d %s, want 400", status, body)
	}
	if api.hits() != 1 {
		t.Errorf("the upstream saw %d requests, want 1", api.hits())
	}
}
