//go:build readers

package readers

import "strings"

// twist changes what does not belong to one source: the method, the path, the
// framing, the version, the fields of the connection.
func (k *maker) twist(m *message) {
	if k.IntN(5) == 0 && m.version == "HTTP/1.1" {
		m.http2 = true
		m.label("HTTP/2")
	}
	if k.IntN(2) == 0 {
		return
	}
	twists := []func(*message){k.spellPath, k.spellPath, k.method, k.connection, k.chunked, k.absolute, k.fragment, k.version, k.preflight, k.body, k.body, k.overrides}
	twists[k.IntN(len(twists))](m)
}

// spellPath writes the path so that a lenient router still finds its route.
func (k *maker) spellPath(m *message) {
	path, query, asked := strings.Cut(m.target, "?")
	if !strings.HasPrefix(path, "/v1/") || len(path) < 6 {
		return
	}
	name := path[len("/v1/"):]
	title := strings.ToUpper(name[:1]) + name[1:]
	spelled := pick(k,
		"/V1/"+name, "/v1/"+title, "/v1/"+strings.ToUpper(name), path+"/", path+"//", "//v1/"+name, "/v1//"+name, "/./v1/"+name, "/v1/./"+name, "/v1/x/../"+name, "/x/../v1/"+name, "/../v1/"+name, path+"/.", path+"/x/..", path+"/./",
		"/v1/%"+hex(name[0])+name[1:], "/%76%31/"+name, "/v1%2F"+name, "/v1%2f"+name, "/v1%5C"+name, "/v1\\"+name, "/v1/%2e/"+name, "/v1/x/%2e%2e/"+name, "/v1/x/%2E./"+name, "/v1;x=1/"+name, "/v1/;/"+name, path+";x=1", path+";", path+";/", path+"%3B", path+".", path+"..", path+"%2e", path+"%20", path+"+", path+"%00", path+"%0a", path+"%09", path+"%23", path+"%3F", path+"%2F", path+"%5C", path+"%252F", "/%2576%2531/"+name,
		path+"%c0%af", "/v1%c0%af"+name, "/v1/x/..;/"+name, "/v1/..;/v1/"+name, "/;x/v1/"+name, path+".json", path+",", path+"\u3000", path+"%E3%80%80", path+"?", path+"&", "/v1 /"+name, path+"%C2%A0", "/v1/"+name[:1]+"\u200b"+name[1:], "/index.php"+path, "/v%EF%BC%91/"+name, "/V1/"+strings.ToUpper(name)+"/", "/v1/"+strings.Replace(name, "s", "%C5%BF", 1), "/v1/"+strings.Replace(name, "k", "%E2%84%AA", 1))
	m.label("path %s", strings.Replace(spelled, path, "P", 1))
	m.target = spelled
	if asked {
		m.target += "?" + query
	}
}

func hex(c byte) string { return strings.TrimPrefix(percent(string(c)), "%") }

// method spells the method so that a lenient server still takes it for the route's.
func (k *maker) method(m *message) {
	switch m.method {
	case "GET":
		m.method = pick(k, "HEAD", "get", "Get", "head", "GeT", "HEAD")
	default:
		lower := strings.ToLower(m.method)
		m.method = pick(k, lower, strings.ToUpper(lower[:1])+lower[1:], "PUT", "PATCH", "OPTIONS")
	}
	m.label("method %s", m.method)
}

// connection names a field that the request has, so that it would not be passed on.
func (k *maker) connection(m *message) {
	name := m.fields[k.IntN(len(m.fields))].name
	name = pick(k, strings.TrimSpace(name), "X-Phone", "Content-Type", "Cookie", "Authorization", "X-Counted", "Host", "Content-Length", "Idempotency-Key", "X-Phone-E164")
	m.add(pick(k, "Connection", "connection", "Connection", "Proxy-Connection", "Keep-Alive"), pick(k, name, "close, "+name, strings.ToLower(name), name+",", "\""+name+"\"", "keep-alive,\t"+name, name+";x"))
	m.label("Connection %s", m.fields[len(m.fields)-1].value)
}

// chunked sends the body in pieces, with trailers that mean something.
func (k *maker) chunked(m *message) {
	if m.body == nil || m.version != "HTTP/1.1" {
		return
	}
	m.chunked = true
	m.extension = pick(k, "", ";x", ";x=y", " ;x=\"a;b\"", "")
	name := pick(k, "X-Phone", "X-Phone-E164", "Cookie", "Content-Type", "Authorization", "Idempotency-Key", "Content-Disposition", "X-Counted", "X_Phone")
	if k.IntN(2) == 0 {
		m.trailers = []field{{name, ": ", k.other}}
		m.label("trailer %s", name)
		if k.IntN(2) == 0 {
			m.add("Trailer", name)
		}
	}
	m.label("chunked %s", m.extension)
}

// absolute writes the target as proxies are asked.
func (k *maker) absolute(m *message) {
	if !strings.HasPrefix(m.target, "/") || m.http2 {
		return
	}
	before := pick(k, "http://weir.example", "HTTP://WEIR.EXAMPLE", "https://weir.example", "http://pay.example.com", "http://x@weir.example", "http://", "ftp://weir.example", "http:/", "//weir.example", "http://weir.example:80", "http://weir.example/..", "http:", "http://weir.example\\@pay.example.com")
	m.target = before + m.target
	m.label("absolute %s", before)
}

// fragment puts a # into the target, where none belongs.
func (k *maker) fragment(m *message) {
	path, query, asked := strings.Cut(m.target, "?")
	where := pick(k, "path", "end", "before", "query")
	switch {
	case where == "path":
		path += "#x"
	case where == "before":
		path = "/#" + path
	case where == "query" && asked:
		query = "#" + query
	default:
		query, asked = query+"#1", true
	}
	m.target = path
	if asked {
		m.target += "?" + query
	}
	m.label("# at the %s", where)
}

// version writes another one.
func (k *maker) version(m *message) {
	if m.http2 {
		return
	}
	m.version = pick(k, "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "http/1.1", "HTTP/1.1 ", "HTTP/01.1", "HTTP/2.0", "HTTP/0.9")
	m.label("version %q", m.version)
	if k.IntN(2) == 0 && m.version == "HTTP/1.0" {
		m.remove("Host")
		m.label("no host")
	}
}

// preflight makes the request look like a browser's question.
func (k *maker) preflight(m *message) {
	m.method = pick(k, "OPTIONS", "options", m.method)
	m.add("Origin", "https://www.example.com")
	m.add("Access-Control-Request-Method", "POST")
	m.label("as a preflight, %s", m.method)
}

// body gives a request a body with a number where the route reads none, or one
// where the route reads the query.
func (k *maker) body(m *message) {
	if m.body == nil {
		m.form(urlencoded, pick(k, "phone_no=", "phone_no[]=", "cost_no=10&phone_no=")+k.other)
		if k.IntN(3) == 0 {
			m.form("multipart/form-data; boundary=xyz", assemble("xyz", []part{{`Content-Disposition: form-data; name="phone_no"`, k.other}}))
		}
		m.label("a form beside it")
		return
	}
	m.target += pick(k, "?phone_no=", "?phone_no[]=") + k.other
	m.label("a query beside it")
}

// overrides adds fields that name another target or method to some.
func (k *maker) overrides(m *message) {
	name := pick(k, "X-Forwarded-Prefix", "X-Forwarded-Path", "Content-Location", "X-Forwarded-Port", "X-Host", "Forwarded", "X-Script-Name", "Script-Name", "Path-Info", "Query-String", "Request-Uri", "Content-Length ", "Proxy")
	value := pick(k, "/v1/header", "phone_no="+k.other, spoof)
	m.add(k.alike(name), value)
	m.label("field %s", name)
}
