//go:build readers

package readers

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// text is a spelling of the number, and what is odd about it.
func (k *maker) text() (text, label string) {
	at := 1 + k.IntN(len(k.own)-1)
	insert := func(s string) string { return k.own[:at] + s + k.own[at:] }
	odd := []struct{ label, text string }{
		{"plain", k.own}, {"plain", k.own}, {"plain", k.own}, {"plain", k.own},
		{"punctuation", insert(pick(k, "-", " ", ".", "(", ")", "/", "  ", "+", "_", "~", "'", "*"))},
		{"digits of another script added", insert(k.foreign())},
		{"digits of another script before", k.foreign() + k.own},
		{"digits of another script after", k.own + k.foreign()},
		{"a digit of another script", strings.Replace(k.own, k.own[at:at+1], string(k.script()+rune(k.own[at]-'0')), 1)},
		{"full width", strings.Map(func(r rune) rune { return r - '0' + 0xff10 }, k.own)},
		{"other numerals", k.own + pick(k, "²", "½", "Ⅷ", "①", "㈠", "𐄇", "零")},
		{"invisible", insert(pick(k, "\u200b", "\u00ad", "\u2060", "\ufeff", "\u202d", "\u200f"))},
		{"odd blank", insert(pick(k, "\u00a0", "\u3000", "\u2028", "\u0085", "\v", "\f", "\t"))},
		{"blank around", pick(k, " "+k.own, k.own+" ", "\t"+k.own, k.own+"\u00a0", "\u3000"+k.own)},
		{"a control character", insert(pick(k, "\x00", "\x01", "\x1f", "\x7f", "\r", "\n"))},
		{"no UTF-8", insert(pick(k, "\xff", "\xc0\xb0", "\xb2", "\x80", "\xed\xa0\x80", "\xa3\xb0"))},
		{"numbers in Latin-1", insert(pick(k, "\u0432", "\u0139", "\u047e", "\uff0b"))},
		{"a list", pick(k, k.own+","+k.other, k.other+", "+k.own, k.own+";"+k.other, "["+k.own+"]", `["`+k.own+`"]`)},
		{"quotes", pick(k, `"`+k.own+`"`, "'"+k.own+"'", `\"`+k.own, k.own+`\`)},
		{"an extension", k.own + pick(k, " ext 7", ";ext=7", "x7", "#7", ",,7", "p7")},
		{"a scheme", "tel:" + k.own},
		{"letters", pick(k, "x"+k.own, k.own+"x", insert("e"))},
	}
	o := odd[k.IntN(len(odd))]
	return o.text, "number: " + o.label
}

// script is the zero of another script.
func (k *maker) script() rune {
	return pick(k, '\u0660', '\u06f0', '\u0966', '\u09e6', '\u0e50', '\u17e0', '\uff10', '\U0001d7ce', '\U0001e950')
}

// foreign are one or two digits of another script.
func (k *maker) foreign() string {
	return strings.Repeat(string(k.script()+rune(k.IntN(10))), 1+k.IntN(2))
}

// international is the number as it is written for calls.
func (k *maker) international() (text, label string) {
	text = pick(k, "+86"+k.own, "0086"+k.own, k.own, "+86 "+k.own[:3]+" "+k.own[3:], "tel:+86"+k.own, "+86(0)"+k.own,
		"+86"+k.own+" ext 7", "+86"+k.own+";ext=7", "+86"+k.own+"x8", "+86"+k.own+"#9", "+86"+k.own+",,9", "tel:+86"+k.own+";ext=3",
		"+86"+k.own+";phone-context=+1", "tel:"+k.own+";phone-context=+86", "+86"+k.own+k.foreign(), "\uff0b86"+k.own, "+86"+k.own+"/"+k.other, "+86"+k.own+"\u00a0", "+86"+k.own+" \u5206\u673a 7", k.own+" extn. 12", "+86"+k.own+"~5")
	return text, fmt.Sprintf("number %q", strings.ReplaceAll(strings.ReplaceAll(text, k.own, "N"), k.other, "Q"))
}

// name is a spelling of a parameter's name, with its escapes, that some framework
// may take for name, which has an underscore.
func (k *maker) name(name string) (spelled, label string) {
	if k.IntN(4) == 0 {
		return name, name
	}
	head, back, _ := strings.Cut(name, "_")
	spelled = pick(k,
		name, name, name, head+"."+back, head+"+"+back, head+"%20"+back, head+"["+back, head+"%5B"+back, head+"%5F"+back, head+"%2E"+back,
		name+"[]", name+"%5B%5D", name+"[x]", name+"[0]", name+"[25]", "["+name+"]", name+"[", name+"]", name+"[][]", "["+name+"][]", "["+name+"[]]", name+"[x][y]", name+"[[x]",
		name+"%5B0%5D", name+"[0", name+"%00", name+"%00x", "%00"+name, "+"+name, "%20"+name, name+"+", name+"%20", "%09"+name, name+"%0A", name+".", name+".x", name+".0",
		strings.ToUpper(name), "Phone_No", percent(name), "%70"+name[1:], "%ef%bd%90"+name[1:], head+"%ef%bc%bf"+back, head+"%c2%a0"+back, "%c2%a0"+name, "%e2%80%8b"+name, "%ef%bb%bf"+name,
		"__proto__["+name+"]", "amp;"+name, "?"+name, "%26"+name, name+"%3D", name+"%ff", head+"%c0%df"+back, head+"%u005F"+back, head+"%255F"+back, "'"+name+"'", "%22"+name+"%22", head+"-"+back, name+"*", name+"%5b", name+"[%00]", "["+name, "."+name, "_"+name, head+"[_"+back)
	return spelled, spelled
}

// pairs are parameters that carry the number.
func (k *maker) pairs(m *message) string {
	name, label := k.name("phone_no")
	text, kind := k.text()
	value := k.escape(text)
	m.label("name %s, %s", label, kind)
	pair, plain := name+"="+value, "phone_no="+k.other
	switch k.IntN(14) {
	case 0:
		m.label("after a plain one")
		return plain + "&" + pair
	case 1:
		m.label("before a plain one")
		return pair + "&" + plain
	case 2:
		between := pick(k, ";", "&amp;", "&&", "%26", "\n", ",", "&;", "?", "&?")
		m.label("divided by %q", between)
		return pick(k, "a=1"+between+pair, plain+between+pair, pair+between+plain)
	case 3:
		m.label("with a fragment")
		return pick(k, pair+"#1", pair+"#"+text[:1], "a#"+pair, pair+"%231", "#"+pair, pair+"#&"+plain)
	case 4:
		m.label("equals signs")
		return pick(k, name+"=="+value, "="+pair, name+"%3D"+value, name, name+"=&"+pair, pair+"=", name+"&"+pair)
	case 5:
		m.label("many others")
		return strings.Repeat("a=1&", pick(k, 19, 20, 999, 1000, 1001)) + pair
	case 6:
		m.label("a character set")
		return pick(k, "utf8=%26%2310003%3B&", "_charset_=utf-16&", "_charset_=iso-8859-1&", "utf8=%E2%9C%93&") + pair
	case 7:
		m.label("an escape that is none")
		return pick(k, "a=%&", "a=%zz&", "%=1&", "a=%u0031&", "%E0%A4%A=1&") + pair
	}
	return pair
}

// escape writes a value so that it can stand in a query or a form.
func (k *maker) escape(text string) string {
	switch k.IntN(8) {
	case 0:
		return percent(text)
	case 1:
		return strings.ToLower(percent(text))
	case 2:
		return url.PathEscape(text)
	case 3:
		at := k.IntN(len(text))
		return url.QueryEscape(text[:at]) + fmt.Sprintf("%%%02x", text[at]) + url.QueryEscape(text[at+1:])
	}
	return url.QueryEscape(text)
}

// disguise is a spelling of a field's name that some server may take for it.
func (k *maker) disguise(name string) string {
	dash := strings.IndexByte(name, '-')
	with := func(c string) string { return name[:dash] + c + name[dash+1:] }
	odd := []string{strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.ToLower(name), strings.ToUpper(name),
		name + "_", name + ".", name + "[]", " " + name, "_" + name, "HTTP_" + name, "Http-" + name, name + "\x00"}
	for _, c := range strings.Split("_ . ! # $ % & ' * + ^ ` | ~", " ") {
		odd = append(odd, with(c))
	}
	if strings.Count(name, "-") > 1 {
		last := strings.LastIndexByte(name, '-')
		odd = append(odd, name[:last]+"_"+name[last+1:], name[:last]+"."+name[last+1:])
	}
	return pick(k, slices.Concat(odd, odd[:2])...)
}

// alike is mostly the name itself.
func (k *maker) alike(name string) string {
	return pick(k, name, name, name, strings.ToLower(name), strings.ToUpper(name), name+" ", strings.ReplaceAll(name, "-", "_"))
}

// field carries a value in a header field.
func (k *maker) field(m *message, name, text, label string) {
	m.label("%s", label)
	switch k.IntN(10) {
	case 0:
		spelled := k.disguise(name)
		m.add(spelled, text)
		m.label("field %s", spelled)
	case 1:
		spelled := k.disguise(name)
		m.add(name, k.other)
		m.add(spelled, text)
		m.label("beside field %s", spelled)
	case 2:
		m.add(name, k.other)
		m.add(pick(k, name, strings.ToLower(name)), text)
		m.label("twice")
	case 3:
		between := pick(k, ":", ":\t", ": \t ", " : ", ":\v", ":\u00a0", ":\r\n ", ":\r\n\t", "\t:")
		m.fields = append(m.fields, field{name, between, text})
		m.label("after %q", between)
	case 4:
		end := pick(k, " ", "\t", " \t", "\u00a0", "\xa0", "\v", "\f", "\u3000", "\x85", "\r")
		m.add(name, text+end)
		m.label("before %q", end)
	case 5:
		m.add(name, "")
		m.add(name, text)
		m.label("after an empty one")
	default:
		m.add(name, text)
	}
}

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
