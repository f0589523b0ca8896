package proxy

import (
	"fmt"
	"testing"
)

// Servlets, Rack and Go's FormValue look for a parameter in the query and in the form.
func TestBeside_AFormIsRefused(t *testing.T) {
	f := startServer(t, `
keys:
  q: {from: "query:phone", on_missing: skip}
  both: {from: "query:phone", must_equal: "form:phone"}
  form: {from: "form:user", on_missing: skip}
  user: {from: "query:user", on_missing: skip}
routes:
  - {name: query, match: {path: /query}, upstream: echo, limits: [{key: q, rate: 99/1h}]}
  - {name: cost, match: {path: /cost}, upstream: echo, limits: [{key: global, rate: 99/1h, cost: "query:size", max_cost: 10}]}
  - {name: distinct, match: {path: /distinct}, upstream: echo, limits: [{key: global, distinct: q, rate: 99/1h}]}
  - {name: step, match: {path: /step}, upstream: echo, limits: [{key: global, rate: 99/1h, step_up: {key: q, rate: 9/1h, jwt: {secret: '`+challengeSecret+`'}}}]}
  - {name: subject, match: {path: /subject}, upstream: echo, limits: [{key: global, rate: 99/1h, return_on: {route: query, key: q}}]}
  - {name: told, match: {path: /told}, upstream: echo, form_beside_query: ignore, limits: [{key: q, rate: 99/1h, cost: "query:size", max_cost: 10}]}
  - {name: both, match: {path: /both}, upstream: echo, limits: [{key: both, rate: 99/1h}]}
  - {name: two, match: {path: /two}, upstream: echo, limits: [{key: user, rate: 99/1h}, {name: f, key: form, rate: 99/1h}]}
  - {name: tried, match: {path: /tried}, upstream: echo, limits: [{key: user, rate: 99/1h}, {name: f, key: form, rate: 99/1h, mode: shadow}]}
  - {name: shadow, match: {path: /shadow}, upstream: echo, limits: [{key: q, rate: 99/1h, mode: shadow}]}
  - {name: v1, match: {path: /v, query: {v: "1"}}, upstream: echo, limits: [{key: client_ip, rate: 99/1h}]}
  - {name: v1-told, match: {path: /w, query: {v: "1"}}, upstream: echo, form_beside_query: ignore, limits: [{key: client_ip, rate: 99/1h}]}
  - {name: rest, match: {path: /*}, upstream: echo}
  - {name: none, match: {path: /none}, upstream: echo, limits: [{key: client_ip, rate: 99/1h}]}
`)
	const form, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	for _, c := range []struct {
		line, kind, body string
		want             int
	}{
		{"POST /query?phone=1", form, "phone=2", 400},
		{"POST /query", form, "phone=2", 400},
		{"POST /query?phone=1", form, "a=2", 400}, // what is in it is not looked at
		{"GET /query?phone=1", form, "phone=2", 400},
		{"POST /query?phone=1", parts, "--b--\r\n", 400},
		{"PUT /query?phone=1", "Multipart/Related; boundary=b", "--b--\r\n", 400},
		{"POST /query?phone=1", "text/plain, " + form, "phone=2", 400},
		{"POST /query?phone=1", "", "phone=2", 400}, // a form to Rack
		{"PUT /query?phone=1", "", "phone=2", 200},
		{"POST /query?phone=1", form, "", 200},
		{"POST /query?phone=1", "application/json", "{}", 200},
		{"POST /query?phone=1", "text/plain", "phone=2", 200},
		{"POST /cost?size=1", form, "size=9", 400},
		{"POST /cost", form, "size=9", 400},
		{"POST /cost?size=1", "application/json", "{}", 200},
		{"POST /distinct?phone=1", form, "phone=2", 400},
		{"POST /step?phone=1", form, "phone=2", 400},
		{"POST /subject?phone=1", form, "phone=2", 400},
		{"POST /told?phone=1&size=2", form, "phone=2", 200},
		{"POST /both?phone=1", form, "phone=2", 400},
		{"POST /both?phone=1", form, "phone=1", 200},
		{"POST /both?phone=1", form, "a=2", 200},
		{"POST /both?phone=1", "", "", 200},
		{"POST /two?x=1", form, "user=2", 200},
		{"POST /two?user=1", form, "user=2", 400},
		{"POST /two?user=1", form, "a=2", 400},
		{"POST /tried?x=1", form, "user=2", 400},
		{"POST /shadow?phone=1", form, "phone=2", 200},
		{"POST /v?v=2", form, "v=1", 400},
		{"POST /v", form, "v=1", 400},
		{"POST /v", "application/json", "{}", 200},
		{"POST /w?v=1", form, "v=2", 200},
		{"POST /x", form, "v=1", 200},
		{"POST /none?phone=1", form, "phone=2", 200},
	} {
		kind := ""
		if c.kind != "" {
			kind = "Content-Type: " + c.kind + "\r\n"
		}
		t.Log(c.line, c.kind, c.body)
		f.dial(fmt.Sprintf("%s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s", c.line, kind, len(c.body), c.body)).WantStatus(c.want)
		if c.body != "" {
			f.dial(fmt.Sprintf("%s HTTP/1.1\r\nHost: a\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", c.line, kind, len(c.body), c.body)).WantStatus(c.want)
		}
	}
}
