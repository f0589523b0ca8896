// Package openapi reads the OpenAPI document of a running weir, and holds every answer
// against it.
package openapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/weirtest"
)

const served = `listen: {http: "127.0.0.1:0"}
admin: {http: "127.0.0.1:0"}
keys: {phone: {from: "header:X-Phone", normalize: e164, sensitive: true}}
routes:
  - name: sms
    match: {path: /sms, methods: [GET, POST]}
    respond: {body: ok}
    limits: [{name: phone, key: phone, rate: 1/1h, penalty: {after: 5, ban: 1h}, plans: {pro: 2/1h}}, {name: watched, key: client_ip, rate: 1/1h, mode: shadow, return_on: {route: verify, key: phone}}]
  - name: verify
    match: {path: /verify, methods: [POST]}
    respond: {body: ok}
    limits: [{name: guesses, key: phone, rate: 5/1h}]
  - name: moved
    match: {path: "/old/*", headers: {X-Old: "*"}}
    redirect: {to: "/new"}
`

// start builds weir and runs it; it returns where clients and operators connect.
func start(t *testing.T) (clients, operators string) {
	t.Helper()
	return startOn(t, served)
}

// startOn is start with another configuration.
func startOn(t *testing.T, config string) (clients, operators string) {
	t.Helper()
	binary, err := weirtest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	weir := weirtest.Start(t, exec.Command(binary, "-c", weirtest.Write(t, config)))
	return weir.URL, weir.Admin
}

// askUntilRefused asks for one phone until it is refused.
func askUntilRefused(t *testing.T, clients string) {
	t.Helper()
	for range 3 { // allowed, and then refused
		r, _ := http.NewRequest(http.MethodGet, clients+"/sms", nil)
		r.Header.Set("X-Phone", "+8613800138000")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
}

// document is the one that is served, valid for the library.
func document(t *testing.T, operators string) *openapi3.T {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, operators+"/api/v1/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operatorsToken)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("openapi.json is answered %d, %v", answer.StatusCode, err)
	}
	d, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(t.Context()); err != nil {
		t.Fatalf("the document is not valid: %v", err)
	}
	return d
}

// A call is a request and the status that it is answered with.
type call struct {
	method, path, body string
	status             int
}

// calls are at least one of each operation, and what is answered when it goes wrong.
func calls() []call {
	bundle := `{"bundle": {"main": "weir.yaml", "files": {"weir.yaml": ` + quoted(strings.Replace(served, "1/1h", "2/1h", 1)) + `}}, "author": "ann", "dry_run": false}`
	phone := `"pairs": [{"key": "phone", "value": "+8613800138000"}]`
	return []call{
		{"GET", "/config", "", 200},
		{"GET", "/routes", "", 200},
		{"GET", "/limits", "", 200},
		{"GET", "/nodes", "", 200},
		{"GET", "/leader", "", 200},
		{"GET", "/upstreams", "", 200},
		{"GET", "/statistics?minutes=5", "", 200},
		{"GET", "/statistics?minutes=0", "", 400},
		{"GET", "/decisions?outcome=refused&n=5", "", 200},
		{"GET", "/decisions?outcome=lost", "", 400},
		{"GET", "/top?minutes=15", "", 200},
		{"GET", "/conversion?limit=watched&n=5", "", 200},
		{"POST", "/explain", `{"method": "GET", "url": "/sms", "header": {"X-Phone": ["+8613800138000"]}}`, 200},
		{"POST", "/explain", `{"method": "GET", "url": "/nowhere"}`, 200},
		{"POST", "/explain", `{"method": "GET", "url": ""}`, 400},
		{"POST", "/keys/inspect", "{" + phone + "}", 200},
		{"POST", "/keys/inspect", `{"pairs": [{"key": "phone", "value": "12"}]}`, 400},
		{"POST", "/keys/grant", "{" + phone + `, "permits": 1, "reason": "she called"}`, 200},
		{"POST", "/keys/ban", "{" + phone + `, "for": "1h"}`, 200},
		{"POST", "/keys/inspect", "{" + phone + "}", 200}, // banned
		{"POST", "/keys/unban", "{" + phone + "}", 200},
		{"POST", "/keys/plan", "{" + phone + `, "plan": "gold", "for": "1h"}`, 400},
		{"POST", "/keys/plan", "{" + phone + `, "plan": "pro", "for": "1h"}`, 200},
		{"POST", "/keys/inspect", "{" + phone + "}", 200}, // assigned
		{"GET", "/keys/plans", "", 200},
		{"POST", "/keys/unplan", "{" + phone + "}", 200},
		{"POST", "/keys/unplan", "{" + phone + "}", 400},
		{"POST", "/keys/ban", `{"pairs": [{"key": "client_ip", "value": "203.0.113.0/24"}], "for": "1h"}`, 200},
		{"GET", "/bans", "", 200},
		{"POST", "/maintenance", `{"on": true, "route": "moved", "for": "1h"}`, 200},
		{"GET", "/maintenance", "", 200},
		{"POST", "/outcomes", `{"key": "phone", "value": "+8613800138000", "outcome": "verified"}`, 200},
		{"POST", "/keys/reset", "{" + phone + "}", 200},
		{"GET", "/audit?n=3", "", 200},
		{"POST", "/plan", bundle, 200},
		{"POST", "/simulate", form("other", strings.Replace(served, "1/1h", "2/1h", 1), "log", logged), 200},
		{"POST", "/simulate", form("other", "routes: none", "log", logged), 422},
		{"POST", "/simulate", form("host", "a"), 400},
		{"POST", "/simulate", form("own_log", "true"), 409},
		{"POST", "/reload", "", 200},
		{"POST", "/push", bundle, 409},
		{"POST", "/rollback", `{"generation": 0, "author": "ann"}`, 409},
		{"GET", "/history", "", 409},
		{"GET", "/history/1", "", 409},
	}
}

// logged is an access log in which one phone is there three times.
var logged = strings.Repeat(`{"time":"2026-11-22T09:30:00Z","remote_addr":"192.0.2.1","request_method":"GET","request_uri":"/sms","status":200,"http_x_phone":"+8613800138000"}`+"\n", 3)

// form is a form of these fields and values.
func form(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", boundary, pairs[i], pairs[i+1])
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// boundary is between the parts of a form.
const boundary = "next-part"

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestDocument_TellsWhatIsAnswered(t *testing.T) {
	clients, operators := start(t)
	d := document(t, operators)
	askUntilRefused(t, clients)
	d.Servers = openapi3.Servers{{URL: operators + "/api/v1"}}
	router, err := legacy.NewRouter(d)
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{"GET /events": true} // see below
	for _, c := range calls() {
		route := c.check(t, router, operators)
		called[route] = true
	}
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			if !called[method+" "+path] {
				t.Errorf("%s %s stands in the document and was not asked", method, path)
			}
		}
	}
}

// check asks, holds question and answer against the document, and returns the operation.
func (c call) check(t *testing.T, router routers.Router, operators string) string {
	t.Helper()
	r, err := http.NewRequest(c.method, operators+"/api/v1"+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(c.body, "--"+boundary):
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	case c.body != "":
		r.Header.Set("Content-Type", "application/json")
	}
	route, path, err := router.FindRoute(r)
	if err != nil {
		t.Errorf("%s %s is not in the document: %v", c.method, c.path, err)
		return ""
	}
	question := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: path, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateRequest(t.Context(), question); err != nil && c.status == http.StatusOK {
		t.Errorf("%s %s: the document refuses what weir takes: %v", c.method, c.path, err)
	}
	r.Body = io.NopCloser(strings.NewReader(c.body)) // the library has read it
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != c.status {
		t.Errorf("%s %s is answered %d %s, %v; want %d", c.method, c.path, answer.StatusCode, text, err, c.status)
	}
	said := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: question, Status: answer.StatusCode, Header: answer.Header,
		Body: io.NopCloser(bytes.NewReader(text)), Options: question.Options,
	}
	if err := openapi3filter.ValidateResponse(t.Context(), said); err != nil {
		t.Errorf("%s %s: the answer is not what the document says: %v\n%s", c.method, c.path, err, text)
	}
	return c.method + " " + route.Path
}

// What was settled of what limits had reserved is in the statistics, and what a permit of a budget is in the limits.
func TestDocument_TellsWhatWasSettled(t *testing.T) {
	clients, operators := startOn(t, `prices: {models: {key: "query:model", unit: USD, decimals: 4, rows: ["*,20,20,80"]}}`+"\n"+served+`  - name: chat
    match: {path: /chat}
    upstream: echo
    usage: {total: "json:/answered_by"}
    limits: [{name: tokens, key: client_ip, rate: 900/1h, max_cost: 90, cost: {reserve: [30]}}, {name: spend, key: client_ip, budget: [50/1d], price: models, max_cost: 1000, cost: {reserve: [100]}}]
`)
	answer, err := http.Get(clients + "/chat?model=a")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	d := document(t, operators)
	d.Servers = openapi3.Servers{{URL: operators + "/api/v1"}}
	router, err := legacy.NewRouter(d)
	if err != nil {
		t.Fatal(err)
	}
	says := func(path, want string) func() bool {
		return func() bool {
			answer, err := http.Get(operators + "/api/v1" + path)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			return err == nil && strings.Contains(string(text), want)
		}
	}
	await.Until(t, "the node has reported", says("/statistics?minutes=5", `"limit":"tokens","allowed":1,"refused":0,"shadow_refused":0,"unavailable":0,"settled":{"reserved":0,"refunded":0,"charged":0,"requests":0,"absent":1,`))
	if !says("/limits", `"permit":"0.0001 USD"`)() {
		t.Error("the limits do not say what a permit of a budget is")
	}
	for _, path := range []string{"/statistics?minutes=5", "/limits"} {
		call{"GET", path, "", 200}.check(t, router, operators)
	}
}

// Each event's data is an Event as the document has it.
func TestDocument_TellsOfEvents(t *testing.T) {
	_, operators := start(t)
	schema := document(t, operators).Components.Schemas["Event"]
	answer, err := http.Get(operators + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("events are %q", got)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var event any
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if err := schema.Value.VisitJSON(event); err != nil {
			t.Errorf("%v: %s", err, data)
		}
		return
	}
	t.Error("no event came")
}
