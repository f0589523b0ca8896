package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// exercised is a weir to which everything has happened that a metric of the documents
// tells of.
func exercised(t *testing.T) *weir {
	t.Helper()
	server := redistest.Start(t)
	dir := t.TempDir()
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, "nonsense\r\n\r\n")
			c.Close()
		}
	}))
	t.Cleanup(bad.Close)
	write(t, filepath.Join(dir, "weir.yaml"), redisYAML(server.Addr)+`admin: {http: "127.0.0.1:0"}
listen: {http: "127.0.0.1:0", https: "127.0.0.1:0", tls: {cert: cert.pem, key: key.pem}, decide: {http: "127.0.0.1:0", dialect: haproxy}}
traces: {endpoint: "http://127.0.0.1:1"}
upstreams: {demo: echo, gone: {targets: ["http://127.0.0.1:1", "http://127.0.0.1:2"], retries: 1}}
keys: {number: {from: "header:X-Number", normalize: e164}, country: {of: number, part: country}}
lists: {friends: {key: "header:X-Phone", values: [friend], action: bypass}}
routes:
  - {match: {path: /banned}, upstream: demo, lists: [friends], limits: [{key: "header:X-Phone", rate: 1/1h, penalty: {ban: 1h, after: 1}}]}
  - {match: {path: /once}, upstream: demo, idempotency: {header: Idempotency-Key}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {match: {path: /v1/sms/send}, upstream: demo, new_keys: 100/1m, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: again, match: {path: /again}, upstream: demo, limits: [{key: "header:X-Phone", cooldown: [1h], reset_on: {route: right}}]}
  - {name: unused, match: {path: /unused}, upstream: demo, limits: [{key: client_ip, rate: 1000/1h, return_on: {route: right, key: "header:X-Phone"}}, {name: few, key: client_ip, rate: 1/1h, return_on: {route: right, key: "header:X-Phone"}, mode: shadow}]}
  - {name: code, match: {path: /code}, upstream: demo, limits: [{key: country, rate: 1000/1h, return_on: {route: entered, key: number}}]}
  - {name: entered, match: {path: /entered}, upstream: demo, limits: [{key: number, rate: 9/1h}]}
  - {name: right, match: {path: /right}, upstream: demo, limits: [{key: "header:X-Phone", rate: 9/1h, plans: {pro: 90/1h}}]}
  - {match: {path: /challenged}, upstream: demo, limits: [{key: client_ip, rate: 1/1h, step_up: {rate: 1/1h, jwt: {secret: "a secret for tokens of challenges"}}}]}
  - {match: {path: /wait}, upstream: demo, limits: [{key: "header:X-Phone", rate: 1/500ms, wait: 20s}]}
  - {match: {path: /gone}, upstream: gone, refund_on: {errors: [connect]}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: paid, match: {path: /paid}, upstream: demo, limits: [{name: spend, key: global, budget: [9/1h], price: sms, on_store_failure: deny}]}
  - {match: {path: /bad}, upstream: `+bad.URL+`}
prices: {sms: {rows: ["*,*,0.01"], unit: EUR, key: {from: "header:X-Number", normalize: e164, on_missing: skip}}}
`)
	writeCertificate(t, dir)
	w := startWith(t, dir, "-c", "weir.yaml")
	w.reload()
	server.Kill()
	w.statuses("outage", 2)
	server.Restart()
	// What is counted if a request comes soon enough, or Redis is there again, is asked for
	// until it was.
	round := 0
	await.Until(t, "everything has happened", func() bool {
		round++
		w.exercise(fmt.Sprint("p", round))
		return len(uncounted(t, w)) == 0
	}, lazily(func() string { return fmt.Sprint(uncounted(t, w)) }))
	return w
}

// lazily is text that is made when it is needed.
type lazily func() string

func (l lazily) String() string { return l() }

// exercise does for a phone what metrics tell of.
func (w *weir) exercise(phone string) {
	w.t.Helper()
	post := func(path, phone string) {
		do(w.t, http.MethodPost, w.URL+path, http.Header{"X-Phone": {phone}, "Idempotency-Key": {phone}})
	}
	w.statuses(phone, 2)
	post("/gone", phone)
	post("/bad", phone)
	post("/banned", "friend")
	for range 3 {
		post("/banned", phone)
	}
	for range 2 {
		post("/once", phone)
		post("/challenged", phone)
	}
	post("/unused", phone)
	do(w.t, http.MethodPost, w.URL+"/code", http.Header{"X-Number": {"+8613800138000"}})
	post("/paid", phone)
	post("/right", phone)
	for range 2 {
		post("/wait", phone)
	}
	asked := "http://" + w.WaitForLog("serving", nil).Text("decide") + "/decide"
	do(w.t, http.MethodGet, asked, http.Header{
		"X-Original-Method": {"POST"}, "X-Original-Uri": {"/right"}, "X-Original-Host": {"localhost"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Phone": {phone},
	})
	do(w.t, http.MethodPost, asked+"/outcome?handle=forged&status=200", nil)
}

// uncounted are the metrics of the documents that weir has not got.
func uncounted(t *testing.T, w *weir) (names []string) {
	t.Helper()
	there := w.metrics()
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllStringSubmatch(prose(t), -1) {
		if !strings.Contains(there, "# TYPE "+m[1]+" ") {
			names = append(names, m[1])
		}
	}
	return names
}

// Every metric that Weir has is in the documents' table with its labels, and the other
// way round.
func TestReadme_NamesEveryMetric(t *testing.T) {
	t.Parallel()
	w := exercised(t)
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllStringSubmatch(prose(t), -1) {
		told = append(told, m[1])
	}
	if len(told) < 8 {
		t.Fatalf("the documents tell of %v only", told)
	}
	seen := regexp.MustCompile(`(?m)^# TYPE (weir_[a-z_]+) `).FindAllStringSubmatch(w.metrics(), -1)
	for _, m := range seen {
		if !strings.Contains(strings.Join(told, " ")+" ", m[1]+" ") {
			t.Errorf("%s is in no document", m[1])
		}
	}
	labels := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)(?:\\{([a-z,]+)\\})?` \\|").FindAllStringSubmatch(prose(t), -1) {
		names := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		slices.Sort(names)
		labels[m[1]] = strings.Join(names, ",")
	}
	for _, m := range regexp.MustCompile(`(?m)^(weir_[a-z_]+?)(?:_bucket|_sum|_count)?(\{.*\})? `).FindAllStringSubmatch(w.metrics(), -1) {
		var names []string
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if label[1] != "le" {
				names = append(names, label[1])
			}
		}
		slices.Sort(names)
		if got, want := strings.Join(names, ","), labels[m[1]]; got != want {
			t.Errorf("%s has the labels %q, the documents say %q", m[1], got, want)
		}
	}
}
