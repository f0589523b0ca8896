package test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// startWhole starts a weir with the file that says everything, in front of two servers
// which answer with the status that X-Want names.
func startWhole(t *testing.T) (w *weir, sms []*countingBackend) {
	t.Helper()
	answer := func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.Header.Get("X-Want"))
		if err != nil {
			status = http.StatusOK
		}
		w.Header().Set("X-Told", r.Header.Get("X-Phone-E164"))
		w.WriteHeader(status)
	}
	sms = []*countingBackend{startBackend(t, answer), startBackend(t, answer)}
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS("testdata/sms")))
	t.Setenv("TEST_REDIS", redistest.Start(t).Addr)
	t.Setenv("TEST_ONE", sms[0].URL)
	t.Setenv("TEST_OTHER", sms[1].URL)
	t.Setenv("WEIR_KEY_SECRET", "0123456789abcdef0123456789abcdef")
	if code, out, said := command(t, dir, "check", filepath.Join(dir, "weir.yaml")); code != 0 || strings.Contains(said, "weir.yaml") {
		t.Fatalf("check ends with %d and says:\n%s%s", code, out, said)
	}
	return startWith(t, dir, "-c", filepath.Join(dir, "weir.yaml")), sms
}

// code asks for a code to be sent, from an address, and returns the answer's status
// and which limits were violated.
func (w *weir) code(path, phone, from string, want int) (status int, header http.Header, body string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.URL+path, strings.NewReader(`{"phone": "`+phone+`"}`))
	check(w.t, err)
	r.Host = "api.example.com"
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-App": {"a"}, "X-Forwarded-For": {from}, "X-Want": {strconv.Itoa(want)}}
	res, err := http.DefaultClient.Do(r)
	check(w.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	check(w.t, err)
	return res.StatusCode, res.Header, string(b)
}

// wantCode wants a status, and of a refusal the limits that were violated.
func (w *weir) wantCode(want int, phone, from string, violated string) {
	w.t.Helper()
	status, header, body := w.code("/v1/sms/send", phone, from, http.StatusOK)
	if status != want || violated != "" && !strings.Contains(body, violated) {
		w.t.Errorf("%s from %s is answered %d %s; want %d %s", phone, from, status, body, want, violated)
	}
	if status == http.StatusOK && header.Get("X-Told") != "" && !strings.HasPrefix(header.Get("X-Told"), "+86") {
		w.t.Errorf("the upstream was told %q", header.Get("X-Told"))
	}
}

// Every rule of the file does what it says.
func TestWhole(t *testing.T) {
	w, sms := startWhole(t)
	// One code a minute for a number, however it is written; what failed is not counted.
	for i := range 3 {
		if status, _, body := w.code("/v1/sms/send", "13800138000", "192.0.2.1", 503); status != 503 {
			t.Fatalf("the upstream's 503 is answered as %d %s", status, body)
		}
		await.Until(t, "the permit is back, after the answer", func() bool { return w.log.Count("request") > i })
	}
	w.wantCode(200, "138 0013 8000", "192.0.2.1", "")
	w.wantCode(429, "+86 138-0013-8000", "192.0.2.2", `"violated-policies":["phone-1m","backoff"]`)
	// The testers are not limited.
	for range 7 {
		w.wantCode(200, "0086 13900000001", "192.0.2.1", "")
	}
	// Three numbers of one address; which limit that is nobody learns.
	w.wantCode(200, "13800138001", "192.0.2.1", "")
	w.wantCode(200, "13800138002", "192.0.2.1", "")
	status, header, body := w.code("/v1/sms/send", "13800138003", "192.0.2.1", 200)
	if status != 429 || strings.Contains(body+strings.Join(header.Values("RateLimit"), ""), "fan") || header.Get("Retry-After") == "" {
		t.Errorf("a fourth number is answered %d %v %s", status, header, body)
	}
	// Guesses count when they are wrong; a right one lets the pauses begin anew.
	for range 5 {
		if status, _, _ := w.code("/v1/sms/verify", "13800138002", "192.0.2.1", 403); status != 403 {
			t.Errorf("a wrong guess is answered %d", status)
		}
	}
	if status, _, _ := w.code("/v1/sms/verify", "13800138002", "192.0.2.1", 200); status != 429 {
		t.Errorf("a sixth guess is answered %d, want 429", status)
	}
	if status, _, _ := w.code("/v1/sms/verify", "13800138000", "192.0.2.1", 204); status != 204 {
		t.Errorf("a right guess is answered %d", status)
	}
	w.wantCode(429, "13800138000", "192.0.2.9", `"violated-policies":["phone-1m"]`)
	// A range that is tried through is banned.
	refused := 0
	for i := range 26 {
		status, _, _ := w.code("/v1/sms/send", "1370013"+strconv.Itoa(1000+i), "198.51.100."+strconv.Itoa(i), 200)
		if status == 429 {
			refused++
		}
	}
	if refused != 6 || w.metric(`weir_bans_total{limit="spray",route="sms-send"}`) != 1 {
		t.Errorf("%d of 26 numbers in a row were refused, want 6 and a ban", refused)
	}
	// Other countries have less, and invented numbers nothing.
	w.wantCode(400, "+1 201 555 0123 456", "192.0.2.7", "")
	w.wantCode(400, "12345", "192.0.2.7", "")
	if got := w.metric(`weir_decisions_total{limit="total",result="allowed",route="sms-send"}`); got < 20 {
		t.Errorf("the limit in shadow mode saw %v requests", got)
	}
	if sms[0].hits() == 0 || sms[1].hits() == 0 {
		t.Errorf("the servers were asked %d and %d times", sms[0].hits(), sms[1].hits())
	}
	w.checkSearches()
}

// checkSearches checks the limits that wait and weigh.
func (w *weir) checkSearches() {
	w.t.Helper()
	var all sync.WaitGroup
	got := make([]int, 25)
	for i := range got {
		all.Go(func() {
			got[i], _ = do(w.t, http.MethodGet, w.URL+"/v1/search/a", http.Header{"X-Forwarded-For": {"203.0.113.1"}})
		})
	}
	all.Wait()
	if n := len(slices.DeleteFunc(slices.Clone(got), func(s int) bool { return s == 200 })); n > 5 {
		w.t.Errorf("%v; want 20 at least to pass", got)
	}
	for i := range 11 {
		want := 200
		if i == 10 {
			want = 429
		}
		status, _ := do(w.t, http.MethodGet, w.URL+"/v1/search/a?size=10", http.Header{"X-Forwarded-For": {"203.0.113.2"}})
		if status != want {
			w.t.Errorf("search %d of 10 permits each is answered %d, want %d", i, status, want)
		}
	}
	for _, want := range []int{200, 429} {
		if status, _, body := w.code("/v1/pairs", "13800138000", "192.0.2.1", 200); status != want {
			w.t.Errorf("the pair is answered %d %s, want %d", status, body, want)
		}
	}
}
