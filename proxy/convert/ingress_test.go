package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// annotated returns two Ingress objects of one host with limits; the one for /admin has further
// annotations too. line is that of the first one.
func annotated(annotations ...string) (file string, line int) {
	const object = `kind: Ingress
metadata:
  name: %s
  annotations:
    nginx.ingress.kubernetes.io/limit-rps: "5"
%sspec: {rules: [{host: a.example, http: {paths: [{path: %s, pathType: Prefix, backend: {service: {name: %s, port: {number: 80}}}}]}}]}
`
	var more strings.Builder
	for _, a := range annotations {
		more.WriteString("    nginx.ingress.kubernetes.io/" + a + "\n")
	}
	return fmt.Sprintf(object, "admin", &more, "/admin", "admin") + "---\n" + fmt.Sprintf(object, "web", "", "/", "web"), 6
}

// annotations are those of ingress-nginx, but for what protects.
func annotations() []string {
	var all []string
	for name, value := range map[string]string{
		"affinity": "cookie", "affinity-mode": "persistent", "app-root": "/a", "auth-cache-key": "a", "auth-keepalive": "5", "auth-method": "GET", "auth-proxy-set-headers": "a/b", "auth-realm": "a", "auth-request-redirect": "/a",
		"auth-response-headers": "X-User", "auth-secret": "a", "auth-secret-type": "auth-file", "auth-signin": "https://a", "auth-signin-redirect-param": "a", "auth-snippet-none": "a", "auth-tls-error-page": "https://a", "auth-tls-match-cn": "CN=a",
		"auth-tls-pass-certificate-to-upstream": "\"true\"", "auth-tls-verify-depth": "2", "backend-protocol": "HTTPS", "canary-weight": "10", "client-body-buffer-size": "1k", "connection-proxy-header": "keep-alive", "cors-allow-origin": "https://a",
		"custom-headers": "a/b", "custom-http-errors": "404", "default-backend": "a", "disable-proxy-intercept-errors": "\"true\"", "enable-access-log": "\"true\"", "enable-cors": "\"true\"", "enable-opentelemetry": "\"true\"", "enable-rewrite-log": "\"true\"",
		"force-ssl-redirect": "\"true\"", "from-to-www-redirect": "\"true\"", "global-rate-limit-ignored-cidrs": "10.0.0.0/8", "http2-push-preload": "\"true\"", "limit-rate": "5", "limit-rate-after": "5", "limit-rpm": "\"50\"", "limit-connections": "\"7\"",
		"limit-burst-multiplier": "\"7\"", "limit-whitelist": "10.0.0.0/8", "limit-allowlist": "10.0.0.0/8", "load-balance": "ewma", "mirror-target": "https://a", "modsecurity-transaction-id": "a", "permanent-redirect": "https://a", "permanent-redirect-code": "308",
		"preserve-trailing-slash": "\"true\"", "proxy-body-size": "7m", "proxy-buffer-size": "8k", "proxy-buffering": "\"on\"", "proxy-connect-timeout": "7", "proxy-cookie-domain": "a b", "proxy-cookie-path": "/a /b", "proxy-http-version": "\"1.1\"",
		"proxy-max-temp-file-size": "1m", "proxy-next-upstream": "error", "proxy-next-upstream-tries": "3", "proxy-read-timeout": "7", "proxy-redirect-from": "a", "proxy-request-buffering": "\"on\"", "proxy-send-timeout": "7", "proxy-ssl-secret": "a/b",
		"proxy-ssl-verify": "\"on\"", "relative-redirects": "\"true\"", "rewrite-target": "/a", "satisfy": "any", "server-alias": "b.example", "service-upstream": "\"true\"", "session-cookie-name": "a", "ssl-ciphers": "a", "ssl-passthrough": "\"true\"",
		"ssl-redirect": "\"true\"", "stream-snippet": "a", "temporal-redirect": "https://a", "upstream-hash-by": "$host", "upstream-vhost": "a", "use-regex": "\"true\"", "websocket-services": "a", "whitelist-source-range": "10.0.0.0/8",
		"denylist-source-range": "10.0.0.0/8", "configuration-snippet": "add_header A b;", "unknown-to-all": "a", "proxy-read-timeout-x": "a",
	} {
		all = append(all, name+": "+value)
	}
	slices.Sort(all)
	return all
}

// Each annotation changes what is written, or is listed with its line.
func TestConvert_IngressAnnotationsAreTranslatedOrListed(t *testing.T) {
	none, _ := annotated()
	before, _ := parsed(t, "ingress-nginx", none)
	for _, a := range annotations() {
		file, line := annotated(a)
		result, _ := parsed(t, "ingress-nginx", file)
		name, _, _ := strings.Cut(a, ":")
		if result.settings() == before.settings() && !result.isListed(name, line) {
			t.Errorf("%s is neither translated nor listed:\n%s", a, result.YAML)
		}
		if lost := result.Lost(); len(lost) > 0 {
			t.Errorf("%s: lost %q", a, lost)
		}
	}
}

// So is each field of an Ingress, and each entry of the ConfigMap.
func TestConvert_IngressFieldsAreTranslatedOrListed(t *testing.T) {
	file, _ := annotated()
	file = strings.Replace(file, "spec: {", "other: 1\nspec: {unknown: 2, ", 1) + "---\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller}\ndata:\n  use-gzip: \"true\"\n  limit-req-status-code: \"429\"\n---\nkind: Service\n"
	result, _ := parsed(t, "ingress-nginx", file)
	for name, line := range map[string]int{"other": 6, "unknown": 7, "use-gzip": 19, "kind: Service": 22} {
		if !result.isListed(name, line) {
			t.Errorf("%s of line %d is not listed:\n%s", name, line, result.YAML)
		}
	}
}

// What protects an Ingress protects it in Weir, or it refuses all requests, and is an error.
func TestConvert_IngressProtectsTheSame(t *testing.T) {
	const admin, web = "http://admin.default.svc:80", "http://web.default.svc:80"
	for _, test := range []struct {
		annotations []string
		lost        int
		answers     map[string]string
	}{
		{[]string{"whitelist-source-range: 10.0.0.0/8, 192.0.2.1"}, 0, map[string]string{"/admin": "403", "/admin/x from 10.0.0.1": admin + "/admin/x", "/admin/ from 192.0.2.1": admin + "/admin/", "/": web + "/"}},
		{[]string{"denylist-source-range: 10.0.0.0/8"}, 0, map[string]string{"/admin": admin + "/admin", "/admin from 10.0.0.1": "403", "/ from 10.0.0.1": web + "/"}},
		{[]string{"whitelist-source-range: office"}, 1, map[string]string{"/admin": "403", "/": web + "/"}},
		{[]string{"auth-type: basic", "auth-secret: a"}, 1, map[string]string{"/admin/x": "403", "/": web + "/"}},
		{[]string{"auth-url: http://auth/"}, 1, map[string]string{"/admin/x": "403", "/": web + "/"}},
		{[]string{"auth-tls-secret: a"}, 1, map[string]string{"/admin/x": "403"}},
		{[]string{`enable-modsecurity: "true"`}, 1, map[string]string{"/admin/x": "403"}},
		{[]string{"configuration-snippet: 'deny all;'"}, 1, map[string]string{"/admin/x": "403"}},
		{[]string{"server-snippet: 'location /a { return 403; }'"}, 1, map[string]string{"/admin/x": "403"}},
		{[]string{"configuration-snippet: 'no nginx {'"}, 1, map[string]string{"/admin/x": "403"}},
		{[]string{`enable-modsecurity: "false"`, "configuration-snippet: 'add_header A b;'"}, 0, map[string]string{"/admin/x": admin + "/admin/x"}},
	} {
		file, _ := annotated(test.annotations...)
		result, c := parsed(t, "ingress-nginx", file)
		if lost := result.Lost(); len(lost) != test.lost {
			t.Errorf("%v: lost %q, want %d", test.annotations, lost, test.lost)
		}
		for _, request := range slices.Sorted(maps.Keys(test.answers)) {
			if got := asked(t, c, request); got != test.answers[request] {
				t.Errorf("%v: %s: %s, want %s\n%s", test.annotations, request, got, test.answers[request], result.YAML)
			}
		}
	}
}

// The annotation of an Ingress holds in place of what the ConfigMap has, whichever of its two names each uses; with one
// without a value it refuses all.
func TestConvert_IngressAnnotationsReplaceTheConfigMap(t *testing.T) {
	const all = "\n---\nkind: ConfigMap\ndata: {whitelist-source-range: 10.0.0.0/8}\n"
	for _, test := range []struct{ annotation, others, inside, outside string }{
		{"allowlist-source-range: 192.0.2.1", all, "192.0.2.1", "10.0.0.1"},
		{"whitelist-source-range: 192.0.2.1", strings.Replace(all, "white", "allow", 1), "192.0.2.1", "10.0.0.1"},
		{"whitelist-source-range: 192.0.2.1", all, "192.0.2.1", "10.0.0.1"},
		{`whitelist-source-range: ""`, all, "", "10.0.0.1"},
		{`whitelist-source-range: ""`, "", "", "10.0.0.1"},
		{`denylist-source-range: " "`, "", "", "10.0.0.1"},
		{"limit-rpm: 5", "\n---\nkind: ConfigMap\ndata: {whitelist-source-range: \"\"}\n", "10.0.0.1", ""},
		{"allowlist-source-range: 192.0.2.1\n    " + ingressPrefix + "whitelist-source-range: 10.0.0.1", "", "192.0.2.1", "10.0.0.1"},
	} {
		file, _ := annotated(test.annotation)
		_, c := parsed(t, "ingress-nginx", file+test.others)
		if test.outside != "" && asked(t, c, "/admin from "+test.outside) != "403" {
			t.Errorf("%s%s: %s gets through", test.annotation, test.others, test.outside)
		}
		if test.inside != "" && asked(t, c, "/admin from "+test.inside) == "403" {
			t.Errorf("%s%s: %s is refused", test.annotation, test.others, test.inside)
		}
	}
}

// Paths with expressions: those that stand for all below a prefix are paths of Weir; of others a
// protected one is refused with all that it could match.
func TestConvert_IngressExpressions(t *testing.T) {
	for path, answers := range map[string]map[string]string{
		"/(.*)":            {"/x": "403", "/": "403"},
		"/admin(/|$)(.*)":  {"/admin": "403", "/admin/": "403", "/admin/x": "403", "/": "http://web.default.svc:80/"},
		"/admin/(a|b)/(c)": {"/admin/a/c": "403", "/ADMIN/a/c": "403", "/": "http://web.default.svc:80/"},
	} {
		file, _ := annotated("auth-url: http://auth/", `use-regex: "true"`)
		file = strings.Replace(file, "path: /admin, pathType: Prefix", "path: '"+path+"', pathType: ImplementationSpecific", 1)
		result, c := parsed(t, "ingress-nginx", file)
		for request, want := range answers {
			if got := asked(t, c, request); got != want {
				t.Errorf("%s: %s: %s, want %s\n%s", path, request, got, want, result.YAML)
			}
		}
	}
}

// An Ingress without limits takes its paths from one with limits, and a protected one of them
// stays protected.
func TestConvert_IngressWithoutLimitsHasItsPaths(t *testing.T) {
	file, _ := annotated("auth-url: http://auth/")
	file = strings.Replace(file, `    nginx.ingress.kubernetes.io/limit-rps: "5"`+"\n", "", 1)
	_, c := parsed(t, "ingress-nginx", file)
	if got := asked(t, c, "/admin/x"); got != "403" {
		t.Errorf("%s, want 403", got)
	}
	if n := len(c.Routes[0].Limits); n > 0 {
		t.Errorf("%d limits, want none", n)
	}
}

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
	for recursive, noted := range map[string]bool{"": true, "real_ip_recursive off;": true, "real_ip_recursive on;": false} {
		result, _ := parsed(t, "nginx", inServer("set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; "+recursive+" location / { "+app+" }"))
		if got := strings.Contains(string(result.YAML), "nginx takes the last address of X-Forwarded-For"); got != noted {
			t.Errorf("%q: noted %v, want %v", recursive, got, noted)
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
	// where Weir listens, and with which certificate, is written by hand
	if !result.isListed("has a host of another one", 5) || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].What, "there is no listen.https") {
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
