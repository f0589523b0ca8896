package admin

import (
	"context"
	"net/http"
	"testing"
)

// A page that gives its own name the address of this machine is not answered.
func TestLocal_AnswersThisMachineAlone(t *testing.T) {
	for host, want := range map[string]int{
		"127.0.0.1:9901": 200, "127.8.8.8": 200, "localhost:9901": 200, "LocalHost.": 200, "[::1]:9901": 200, "[::ffff:127.0.0.1]": 200, "weir.internal:9901": 200, "": 200,
		"evil.example:9901": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "10.0.0.1:9901": 421, "0.0.0.0": 421, "[2001:db8::1]": 421,
	} {
		o := Options{Hosts: []string{"Weir.internal"}}
		for _, path := range []string{"/healthz", "/metrics"} {
			if w := adminRequest(o, "GET", path, "Host: "+host); w.Code != want {
				t.Errorf("%s for %q = %d %s; want %d", path, host, w.Code, w.Body, want)
			}
		}
		o.Token = "sixteen characters"
		if w := adminRequest(o, "GET", "/healthz", "Host: "+host); w.Code != 200 {
			t.Errorf("with a token, %q = %d; want 200", host, w.Code)
		}
	}
}

func TestLocal_NoPageChangesAnything(t *testing.T) {
	o := reloads(Reloaded{}, nil)
	for line, want := range map[string]int{
		"X-A: b": 200, "Origin: http://127.0.0.1:9901": 403, "Origin: null": 403, "Sec-Fetch-Site: same-origin": 403, "Sec-Fetch-Mode: navigate": 403, "Sec-Fetch-Site: none": 403,
	} {
		if w := adminRequest(o, "POST", "/reload", line); w.Code != want {
			t.Errorf("POST with %s = %d %s; want %d", line, w.Code, w.Body, want)
		}
	}
	o.Ready = func(context.Context) Readiness { return Readiness{Ready: true} }
	if w := adminRequest(o, http.MethodGet, "/readyz", "Sec-Fetch-Site: none"); w.Code != 200 {
		t.Errorf("somebody looks with a browser: %d; want 200", w.Code)
	}
	o.Token = "sixteen characters"
	if w := adminRequest(o, "POST", "/reload", "Host: weir.example", "Origin: http://weir.example", "Authorization: Bearer sixteen characters"); w.Code != 200 {
		t.Errorf("with a token, from its own page: %d %s; want 200", w.Code, w.Body)
	}
}
