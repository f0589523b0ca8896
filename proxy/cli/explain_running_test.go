package cli

import (
	"strings"
	"testing"
)

// A request's record is printed with each fact that there is, and no other.
func TestExplain_WhatWasDecided(t *testing.T) {
	whole := `{"node":"b","request_id":"1","at":"2026-01-02T03:04:05.000000006Z","route":"sms","method":"POST","path":"/sms","status":429,"outcome":"refused","summary":"refused by sms.phone 5/1h, banned",
		"list":"deny","new_keys":"refused","fallback":"local","upstream":"u","error":"away","repeated":true,"waited":true,"exempt":true,"ban_began":true,"limits":[
		{"limit":"sms.phone","rate":"phone-1h","result":"refused","banned":true,"left":0,"wait_ms":0.25,"key":"phone","masked":"+86138****8000","hash":"ab"},
		{"limit":"sms.all","rate":"all-1m","result":"not_asked","key":"global"}]}`
	all := `POST /sms: 429, refused
refused by sms.phone 5/1h, banned
  at             2026-01-02T03:04:05.000000006Z
  node           b
  route          sms
  upstream       u
  list           deny
  new keys       refused
  without redis  local
  error          away
  repeats a counted request
  waited for a permit
  no limit applied
  this refusal started a ban
  LIMIT      RATE      RESULT           LEFT  WAIT  KEY             HASH
  sms.phone  phone-1h  refused, banned  0     1ms   +86138****8000  ab
`
	for _, row := range []struct{ answer, out, stderr string }{
		{`{"decisions":[` + whole + `]}`, all, ""},
		{`{"nodes":[{"node":"a","said":"ok"},{"node":"c","said":"too busy"},{"node":"d"}],"decisions":[{"node":"a","at":"2026-01-02T03:04:05Z","method":"GET","path":"/","status":200,"outcome":"allowed"}]}`,
			"GET /: 200, allowed\n  at    2026-01-02T03:04:05Z\n  node  a\n", "c: too busy\nd: no answer\n"},
		{`{"decisions":[]}`, "", `weir: no node has a record of request "some-id": the id is in the response field X-Request-Id and in the log; only the last few thousand requests are kept` + "\n"},
	} {
		addr, asked := startAdmin(t, map[string]string{"/api/v1/decisions": row.answer})
		code, out, stderr := runWeir("explain", "some-id", "--admin", addr, "--token", "secret")
		if out != row.out || stderr != row.stderr || (code == exitOK) != (row.out != "") {
			t.Errorf("%s is told as %d, %q, %q; want\n%s%s", row.answer, code, out, stderr, row.out, row.stderr)
		}
		if got := asked(); !strings.HasPrefix(got, "GET /api/v1/decisions?request_id=some-id Bearer secret") {
			t.Errorf("asked by %s", got)
		}
	}
	if code, _, stderr := runWeir("explain", "some-id", "-c", "weir.yaml"); code != exitFailure || !strings.Contains(stderr, "a request id needs a running weir; leave out -c") {
		t.Errorf("an id and a file: %d, %q", code, stderr)
	}
}

// What a running weir would do is asked of it: it knows methods that no file here names.
func TestExplain_AsksARunningWeir(t *testing.T) {
	addr, asked := startAdmin(t, map[string]string{
		"/api/v1/routes":  `{"routes":[{"name":"a","methods":["BREW"]}]}`,
		"/api/v1/explain": `{"method":"BREW"}`,
	})
	if code, _, stderr := runWeir("explain", "--admin", addr, "BREWS", "/a"); code != exitFailure || stderr != "weir: method \"BREWS\": not a known method; did you mean BREW?\n" {
		t.Errorf("a method that no route has: %d, %q", code, stderr)
	}
	code, out, stderr := runWeir("explain", "--admin", addr, "--json", "BREW", "/a", "-H", "x-phone: 1", "-H", "X-Phone:2", "-d", "{}")
	if code != exitOK || !strings.Contains(out, `"method": "BREW"`) {
		t.Errorf("explain = %d, %q, %q", code, out, stderr)
	}
	for _, want := range []string{"POST /api/v1/explain ", `"X-Phone":["1","2"]`, `"Content-Type":["application/json"]`} {
		if !strings.Contains(asked(), want) {
			t.Errorf("asked %s; want %s", asked(), want)
		}
	}
	if runWeir("explain", "--admin", addr, "BREW", "/a", "-d", "a=1"); !strings.Contains(asked(), `"Content-Type":["application/x-www-form-urlencoded"]`) {
		t.Errorf("a body that is no JSON is sent as %s", asked())
	}
}
