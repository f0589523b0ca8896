package config

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/filetest"
)

// TestListeners tables which pairs of addresses can be listened on, and where
// the admin listener needs a token.
func TestListeners(t *testing.T) {
	for _, tt := range []struct{ clients, admin, token, want string }{
		{":8080", "127.0.0.1:9901", "", ""},
		{":8080", "[::1]:9901", "", ""},
		{":8080", "localhost:9901", "", ""},
		{":8080", "[::ffff:127.0.0.1]:9901", "", ""},
		{"127.0.0.1:0", "127.0.0.1:0", "", ""},
		{"10.0.0.1:80", "10.0.0.2:80", "secret of sixteen", ""},
		{"10.0.0.1:80", "127.0.0.1:80", "", ""},
		{":8080", ":9901", "secret of sixteen", ""},
		{":8080", "10.0.0.1:9901", "secret of sixteen", ""},
		{":8080", ":9901", "", "anyone"},
		{":8080", ":9901", "fifteen-letters", "guess"},
		{":8080", "127.0.0.1:9901", "short", ""},
		{":8080", "0.0.0.0:9901", "", "anyone"},
		{":8080", "[::]:9901", "", "anyone"},
		{":8080", "10.0.0.1:9901", "", "anyone"},
		{":8080", "weir.example:9901", "", "anyone"},
		{":8080", "127.0.0.1:8080", "", "listens where"},
		{"127.0.0.1:80", "[::]:80", "secret of sixteen", "listens where"},
		{"127.0.0.1:80", "localhost:80", "", "listens where"},
		{"a.example:80", "a.example:80", "secret of sixteen", "listens where"},
	} {
		text := "listen: {http: \"" + tt.clients + "\"}\nadmin: {http: \"" + tt.admin + "\", token: \"" + tt.token + "\"}\n" + small
		_, err := Parse("weir.yaml", []byte(text), environment)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s beside %s: got %v", tt.admin, tt.clients, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s beside %s: got %v, want %q", tt.admin, tt.clients, err, tt.want)
		}
	}
}

func TestNetworks(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":      "10.0.0.0/8",
		"10.1.2.3":        "10.1.2.3/32",
		"::ffff:10.1.2.3": "10.1.2.3/32",
		"fd00::/8":        "fd00::/8",
		"fd00::1":         "fd00::1/128",
	} {
		c := mustParse(t, "client_ip: {trusted_proxies: [\""+text+"\"]}\n"+small)
		if got := c.ClientIP.TrustedProxies; len(got) != 1 || got[0] != netip.MustParsePrefix(want) {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
	}
}

// TestLoad_DialsNothing: the first who comes to the server that a config names
// is the test itself.
func TestLoad_DialsNothing(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at := server.Addr().String()
	c, err := Load(filetest.Files(t, "weir.yaml", "store: redis\nredis: {addrs: \""+at+"\"}\nroutes:\n  - {match: {path: /a}, upstream: \"http://"+at+"\"}\n"))
	if err != nil || c.Redis.Addrs[0] != at {
		t.Fatalf("got %v, %v", c, err)
	}
	mine, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	first, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.RemoteAddr().String() != mine.LocalAddr().String() {
		t.Errorf("somebody dialled from %v", first.RemoteAddr())
	}
}
