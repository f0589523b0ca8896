package respond

import (
	"encoding/json"
	"testing"
	"time"
)

// What Weir says of an error can be said in the operator's words; what only the error knows stays.
func TestErrorTexts(t *testing.T) {
	e := NewErrorTexts(map[int]ErrorText{
		503: {Body: `{"code": {status}, "after": {retry_after}, "id": "{request_id}"}`, ContentType: "application/json", Fields: []Field{{"X-Wait", "{retry_after}"}}},
		400: {Body: "no ({retry_after})", ContentType: "text/plain; charset=utf-8"},
		405: {Detail: "Ask {request_id}."},
		404: {Fields: []Field{{"X-Error", "{status}"}}},
	})
	busy := e.Replace(Unavailable(NoUpstream, 1500*time.Millisecond, "", `a"b`), `a"b`, "")
	if string(busy.Body) != `{"code": 503, "after": 2, "id": "a\"b"}` || !json.Valid(busy.Body) {
		t.Errorf("503: %s", busy.Body)
	}
	for name, want := range map[string]string{"Retry-After": "2", "Cache-Control": "no-store", "Content-Type": "application/json", "X-Wait": "2", "Content-Length": "39"} {
		if got := busy.Field(name); got != want {
			t.Errorf("503: %s is %q; want %q", name, got, want)
		}
	}
	if got := string(e.Replace(Problem(BadRequest, "why", "id"), "id", "").Body); got != "no (0)" {
		t.Errorf("400: %s", got)
	}
	method := e.Replace(NotAllowed([]string{"GET"}, "id"), "id", "")
	whole(t, method)
	if p := parse(t, method); p.Detail != "Ask id." || p.RequestID != "id" || method.Field("Allow") != "GET" {
		t.Errorf("405: %s %v", method.Body, method.Fields)
	}
	missing := e.Replace(Problem(NotFound, "", "id"), "id", "")
	whole(t, missing)
	if was := Problem(NotFound, "", "id"); string(missing.Body) != string(was.Body) || missing.Field("X-Error") != "404" {
		t.Errorf("404: %s %v; want the same with a field", missing.Body, missing.Fields)
	}
	for _, texts := range []*ErrorTexts{e, nil} { // of which none has this status
		if a := texts.Replace(Problem(BadGateway, "", "id"), "id", ""); string(a.Body) != string(Problem(BadGateway, "", "id").Body) {
			t.Errorf("502: %s", a.Body)
		}
	}
}

// A client that needs a token learns so, and what is wrong with the one it sent.
func TestUnauthorized_HasAChallenge(t *testing.T) {
	a := Unauthorized(`Bearer realm="a.example"`, "jwt:sub: key missing", "id")
	whole(t, a)
	if a.Status != 401 || a.Field("WWW-Authenticate") != `Bearer realm="a.example"` || parse(t, a).Detail != "jwt:sub: key missing" {
		t.Errorf("%d %v %s", a.Status, a.Fields, a.Body)
	}
}
