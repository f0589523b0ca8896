package convert

import (
	"strings"
	"testing"
)

// What Weir has a field for is written in it.
func TestConvert_NginxFieldsOfRoutesAndUpstreams(t *testing.T) {
	for _, test := range []struct {
		directives string
		want       []string // lines
		not        string
	}{
		{"proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;", []string{"    websocket: true"}, "$connection_upgrade"},
		{"proxy_read_timeout 5m; proxy_connect_timeout 500ms;", []string{"{targets: [\"http://127.0.0.1:9000\"], timeouts: {connect: 500ms, response: 5m, idle: 5m}}"}, "waits 60 s"},
		{"client_max_body_size 10m;", []string{"    body: {max: 10MiB}"}, "1 MiB"},
		{"client_max_body_size 0;", []string{"client_max_body_size 0 ("}, "body: {max: 0"},
		{"proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", []string{"Weir passes on fields"}, "rewrite: {headers: {"},
		{"proxy_set_header Host other.example; proxy_set_header Authorization \"\"; proxy_set_header X-Key \"a $b\";", []string{"    rewrite: {headers: {set: {Host: other.example}, remove: [Authorization, X-Key]}}"}, "as Host"},
		{"proxy_set_header X-User $remote_user;", []string{"    rewrite: {headers: {remove: [X-User]}}"}, ""},
		{"proxy_set_header X-Key k;", []string{"    rewrite: {headers: {set: {X-Key: k}}}"}, ""},
		{"add_header X-Frame-Options DENY always; proxy_hide_header Server;", []string{"add_header X-Frame-Options DENY always (4), proxy_hide_header Server (4); Weir passes on fields"}, "rewrite: {response_headers: {set"},
		{"", []string{"nginx sends the host of proxy_pass as Host"}, ""},
		{"limit_req_status 420;", []string{"    reject: {status: 420}"}, "refuses with 503"},
		{"limit_req_status 429;", nil, "refuses with 503"},
	} {
		result, _ := parsed(t, "nginx", inServer("location / { "+test.directives+" "+app+" }"))
		for _, want := range test.want {
			if !strings.Contains(string(result.YAML), want) {
				t.Errorf("%s: want %s\n%s", test.directives, want, result.YAML)
			}
		}
		if test.not != "" && strings.Contains(string(result.YAML), test.not) {
			t.Errorf("%s: do not want %s\n%s", test.directives, test.not, result.YAML)
		}
	}
}

// Clients behind proxies are told apart as in nginx, wherever it says who the proxies are.
func TestConvert_AddressesBehindProxies(t *testing.T) {
	for from, want := range map[string]string{
		"set_real_ip_from 10.0.0.1/8; real_ip_header X-Forwarded-For; real_ip_recursive on;": `client_ip: {trusted_proxies: ["10.0.0.0/8"], header: X-Forwarded-For}`,
		"set_real_ip_from 10.0.0.0/8; set_real_ip_from 2001:db8::1;":                         `client_ip: {trusted_proxies: ["10.0.0.0/8", "2001:db8::1"], header: X-Real-IP}`,
		"set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol;":                        `listen: {proxy_protocol: ["10.0.0.0/8"]}`,
	} {
		for _, file := range []string{from + "\n" + inServer("location / { "+app+" }"), inServer(from + "\nlocation / { " + app + " }")} {
			if result, _ := parsed(t, "nginx", file); !strings.Contains(string(result.YAML), want+"\n") {
				t.Errorf("%s: want %s\n%s", from, want, result.YAML)
			}
		}
	}
	for from, want := range map[string]string{
		`{use-forwarded-headers: "true", proxy-real-ip-cidr: "10.0.0.0/8,192.0.2.1"}`: `client_ip: {trusted_proxies: ["10.0.0.0/8", "192.0.2.1"]}`,
		`{use-proxy-protocol: "true", proxy-real-ip-cidr: 10.0.0.0/8}`:                `listen: {proxy_protocol: ["10.0.0.0/8"]}`,
		`{use-forwarded-headers: "true"}`:                                             `not carried over (with their lines): use-forwarded-headers (16); write client_ip: {trusted_proxies: [NETWORKS], header}`,
	} {
		file, _ := annotated()
		if result, _ := parsed(t, "ingress-nginx", file+"---\nkind: ConfigMap\ndata: "+from+"\n"); !strings.Contains(string(result.YAML), want) {
			t.Errorf("%s: want %s\n%s", from, want, result.YAML)
		}
	}
}

// A server for http and one for https of the same host have routes by scheme; others of a host that has one are noted.
func TestConvert_NginxServersOfOneHost(t *testing.T) {
	const file = `limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s;
limit_req zone=one;
server { listen 80; server_name a.example; return 301 https://$host$request_uri; }
server { listen 443 ssl; server_name a.example; location / { ` + app + ` } }
server { listen 8443 ssl; server_name a.example; location / { proxy_pass http://127.0.0.1:9001; } }
`
	result, c := parsed(t, "nginx", file)
	for request, want := range map[string]string{"http://a.example/x?y=1": "301 https://a.example/x?y=1", "https://a.example/x": "http://127.0.0.1:9000/x"} {
		if got := asked(t, c, request); got != want {
			t.Errorf("%s: %s, want %s\n%s", request, got, want, result.YAML)
		}
	}
	if !result.isListed("has a host of another one", 5) || len(c.Warnings) > 0 {
		t.Errorf("warnings %v\n%s", c.Warnings, result.YAML)
	}
}

// The timeouts and sizes of ingress-nginx are those of Weir, and it lets WebSocket through.
func TestConvert_IngressFields(t *testing.T) {
	file, _ := annotated("proxy-read-timeout: '600'", "proxy-connect-timeout: '5'", "proxy-body-size: 8m")
	result, _ := parsed(t, "ingress-nginx", file)
	for _, want := range []string{"timeouts: {connect: 5s, response: 10m, idle: 10m}", "    body: {max: 8MiB}", "    websocket: true"} {
		if !strings.Contains(string(result.YAML), want) {
			t.Errorf("want %s\n%s", want, result.YAML)
		}
	}
	file, _ = annotated("backend-protocol: FCGI")
	result, c := parsed(t, "ingress-nginx", file)
	if got := asked(t, c, "/admin"); got != "502" || !result.isListed("FCGI", 6) {
		t.Errorf("%s, want 502\n%s", got, result.YAML)
	}
}

// Each field of envoyproxy/ratelimit is translated or listed, at any depth.
func TestConvert_RatelimitFieldsAreTranslatedOrListed(t *testing.T) {
	const file = `domain: edge
@top
descriptors:
  - key: a
    @rule
    rate_limit:
      unit: minute
      requests_per_unit: 5
      @rate
    descriptors:
      - key: b
        @deep
        rate_limit: {unit: hour, requests_per_unit: 7}
`
	lines := map[string]int{"@top": 2, "@rule": 5, "@rate": 9, "@deep": 12}
	for place, line := range lines {
		for _, name := range []string{"unknown: 1", "detailed_metric: true", "metadata: {a: b}", "list: [{a: 1}]"} {
			text := strings.Replace(file, place, name, 1)
			for other := range lines {
				text = strings.Replace(text, other+"\n", "\n", 1)
			}
			result, _ := parsed(t, "ratelimit", text)
			if field, _, _ := strings.Cut(name, ":"); !result.isListed(field, line) {
				t.Errorf("%s at %s, line %d, is not listed\n%s", name, place, line, result.YAML)
			}
		}
	}
}
