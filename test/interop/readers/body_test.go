//go:build readers

package readers

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf16"
)

const urlencoded = "application/x-www-form-urlencoded"

// form carries the number in a form of one line.
func (k *maker) form() *message {
	m := request("POST", "/v1/form")
	m.form(urlencoded, k.pairs(m))
	switch k.IntN(10) {
	case 0:
		kind := pick(k, urlencoded+";charset=utf-8", urlencoded+"; charset=utf-16", urlencoded+";charset=ibm037", urlencoded+"; charset=utf-7",
			urlencoded+"; charset=iso-8859-1", urlencoded+"; charset=iso-8859-1; charset=utf-8", urlencoded+"; charset=us-ascii", urlencoded+";charset=utf8", "Application/X-WWW-Form-URLEncoded", urlencoded+" ", urlencoded+";", urlencoded+"; x",
			urlencoded+", text/plain", "text/plain, "+urlencoded, "text/plain", "", "application/json", "multipart/form-data; boundary=x", urlencoded+"/x", urlencoded+"\t;x=y", "application/x-www-form-urlencoded-x", "x-"+urlencoded, "text/plain; "+urlencoded, urlencoded+";boundary=x", urlencoded+"; charset=\"utf-8\"", urlencoded+";charset=shift_jis")
		m.set("Content-Type", kind)
		m.label("type %s", kind)
	case 1:
		m.add("Content-Type", pick(k, "text/plain", urlencoded, "application/json"))
		m.label("two types")
	case 2:
		m.remove("Content-Type")
		m.label("no type")
	case 3:
		m.body = append([]byte(pick(k, "\ufeff", "?", "&", "\r\n", " ", "\x00")), m.body...)
		m.label("something before it")
	case 4:
		m.body = append(m.body, pick(k, "\r\n", "\n", "\x00", " ", "&", "\x1a")...)
		m.label("something after it")
	case 5:
		k.compress(m)
	case 6:
		m.target += pick(k, "?phone_no="+k.other, "?phone_no[]="+k.other, "?PHONE_NO="+k.other, "?x=1")
		m.label("and a query")
	}
	return m
}

// compress hides the body.
func (k *maker) compress(m *message) {
	coding := pick(k, "gzip", "x-gzip", "GZIP", "gzip, identity", "identity")
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(m.body)
	w.Close()
	if coding != "identity" {
		m.body = b.Bytes()
	}
	m.add("Content-Encoding", coding)
	m.label("coded %s", coding)
}

// A part is one of a multipart form.
type part struct{ header, value string }

// multipart carries the number in a form of parts.
func (k *maker) multipart() *message {
	m := request("POST", "/v1/form")
	text, kind := k.text()
	m.label("multipart, %s", kind)
	own := part{`Content-Disposition: form-data; name="phone_no"`, text}
	other := part{own.header, k.other}
	odd := k.oddPart(m, text)
	var parts []part
	switch k.IntN(5) {
	case 0:
		parts = []part{odd}
	case 1:
		parts = []part{other, odd}
		m.label("after a plain one")
	case 2:
		parts = []part{odd, other}
		m.label("before a plain one")
	default:
		m.labels = m.labels[:1]
		parts = []part{own}
	}
	boundary := "xyz"
	m.form("multipart/form-data; boundary=xyz", assemble(boundary, parts))
	if len(m.labels) == 1 || k.IntN(4) == 0 {
		k.oddForm(m, parts)
	}
	return m
}

func assemble(boundary string, parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "--%s\r\n%s\r\n\r\n%s\r\n", boundary, p.header, p.value)
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// oddPart is a part that some parsers take for phone_no.
func (k *maker) oddPart(m *message, text string) part {
	const d = "Content-Disposition: form-data; "
	coded := base64.StdEncoding.EncodeToString([]byte(text))
	odd := []part{
		{d + "name=phone_no", text}, {d + "name='phone_no'", text}, {d + `name="phone_no`, text}, {d + `name=phone_no"`, text}, {d + `name = "phone_no"`, text}, {d + `name ="phone_no"`, text}, {d + `name= "phone_no"`, text},
		{d + `name*=utf-8''phone_no`, text}, {d + `name*0="phone"; name*1="_no"`, text}, {d + `name="x"; name*=UTF-8''phone_no`, text}, {d + `name*="utf-8''phone_no"; name="x"`, text},
		{d + `name="x"; name="phone_no"`, text}, {d + `name="phone_no"; name="x"`, text}, {d + `NAME="phone_no"`, text}, {d + `Name="x"; name="phone_no"`, text}, {d + `xname="phone_no"`, text}, {d + `filename="x; name=phone_no"`, text}, {d + `x="y; name=\"phone_no\""; name="z"`, text}, {d + `x="\"; name="phone_no"`, text},
		{d + `name="phone\_no"`, text}, {d + `name="phone_no\""`, text}, {d + `name="phone%5Fno"`, text}, {d + `name="phone_no%00"`, text}, {d + `name="phone.no"`, text}, {d + `name="phone no"`, text}, {d + `name="phone[no"`, text}, {d + `name="phone_no[]"`, text}, {d + `name="phone_no[x]"`, text}, {d + `name="[phone_no]"`, text}, {d + `name=" phone_no"`, text}, {d + `name="phone_no "`, text}, {d + `name="PHONE_NO"`, text}, {d + `name="phone_no` + "\x00" + `"`, text}, {d + `name="=?utf-8?Q?phone_no?="`, text}, {d + `name="=?utf-8?B?cGhvbmVfbm8=?="`, text}, {d + `name="&#112;hone_no"`, text}, {d + "name=\"phone_no\xff\"", text}, {d + `name="phone_no."`, text},
		{d + `name="phone_no"; filename="x"`, text}, {d + `name="phone_no"; filename=""`, text}, {d + `name="phone_no"; filename*=utf-8''x`, text}, {d + `name=phone_no; filename=x; filename*=utf-8''x`, text}, {d + `name=x; filename=phone_no; filename*=utf-8''phone_no`, text}, {d + `name="phone_no"; Filename="x"`, text}, {d + `filename="x"; name="phone_no"`, text}, {d + `name="phone_no"; filename`, text}, {d + `name="phone_no"; x="filename=y"`, text},
		{d + "name=\"phone_no\"\r\nContent-Transfer-Encoding: base64", coded}, {d + "name=\"phone_no\"\r\nContent-Transfer-Encoding: quoted-printable", strings.Replace(text, "1", "=31", 1)}, {d + "name=\"phone_no\"\r\nContent-Transfer-Encoding: 7bit", text}, {d + "name=\"phone_no\"\r\nContent-Transfer-Encoding: 8bit", text}, {"content-transfer-encoding: Binary\r\n" + d + "name=phone_no", text}, {d + "name=\"phone_no\"\r\nContent-Transfer-Encoding: 8bit, base64", coded}, {d + "name=\"phone_no\"\r\nContent-Encoding: gzip", text}, {d + "name=\"phone_no\"\r\ncontent-transfer-encoding : base64", coded},
		{d + "name=\"phone_no\"\r\nContent-Type: text/plain", text}, {d + "name=\"phone_no\"\r\nContent-Type: application/json", text}, {d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=utf-16le", utf16le(text)}, {d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=ISO-8859-1", text}, {d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=us-ascii", text}, {d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=utf-7", "+ADE-" + text}, {d + "name=\"phone_no\"\r\nContent-Type: text/plain; charset=ibm037", ebcdic(k.own)}, {d + "name=\"phone_no\"\r\nContent-Type: multipart/mixed; boundary=in", "--in\r\n\r\n" + text + "\r\n--in--"}, {d + "name=\"phone_no\"\r\nContent-Type: application/octet-stream", text},
		{d + "name=\"x\"\r\n" + d + `name="phone_no"`, text}, {d + "name=\"phone_no\"\r\n" + d + `name="x"`, text}, {"Content-Type: text/plain\r\n" + d + `name="phone_no"`, text}, {"content-disposition: FORM-DATA; name=\"phone_no\"", text}, {"Content-Disposition: attachment; name=\"phone_no\"", text}, {"Content-Disposition: inline; name=\"phone_no\"", text}, {"Content-Disposition: file; name=\"phone_no\"", text}, {"Content-Disposition:form-data;name=\"phone_no\"", text}, {"Content-Disposition : form-data; name=\"phone_no\"", text}, {" " + d + `name="phone_no"`, text}, {"X: y\n" + d + `name="phone_no"`, text}, {"Content-Disposition: form-data;\r\n name=\"phone_no\"", text}, {"Content-Disposition: form-data;\r\n\tname=\"phone_no\"", text}, {"Content-Disposition: form-data; name=\"x\"\r\n ; name=\"phone_no\"", text}, {"Content-Disposition: form-data, name=\"phone_no\"", text}, {"Content-Disposition: name=\"phone_no\"", text}, {"Content-Disposition: form-data name=\"phone_no\"", text}, {d + "name=\"phone_no\";", text}, {d + "; name=\"phone_no\"", text}, {d + "name=\"phone_no\"; name", text}, {"Content_Disposition: form-data; name=\"phone_no\"", text},
		{d + "name=\"x\"\r\n\r\na\n\n" + d + `name="phone_no"`, text}, {d + "name=\"x\"\n" + d + `name="phone_no"`, text}, {d + "name=\"x\"\r" + d + `name="phone_no"`, text}, {d + "name=\"phone_no\"\r\nX: " + strings.Repeat("y", 9000), text}, {d + `name="_charset_"` + "\r\n\r\nutf-16\r\n--xyz\r\n" + d + `name="phone_no"`, text},
	}
	p := odd[k.IntN(len(odd))]
	m.label("part %q", p.header[:min(len(p.header), 120)])
	return p
}

// oddForm writes the parts as some parsers read them and others do not.
func (k *maker) oddForm(m *message, parts []part) {
	hidden := fmt.Sprintf("--xyz\r\nContent-Disposition: form-data; name=\"phone_no\"\r\n\r\n%s\r\n", k.other)
	whole := string(m.body)
	inner := strings.TrimSuffix(whole, "--xyz--\r\n")
	odd := []struct{ label, kind, body string }{
		{"a quoted boundary", `multipart/form-data; boundary="xyz"`, whole}, {"a boundary in upper case", "multipart/form-data; BOUNDARY=xyz", whole}, {"a boundary with a blank", `multipart/form-data; boundary="xyz "`, whole}, {"a boundary and a semicolon", "multipart/form-data; boundary=xyz;", whole}, {"a quoted boundary and a semicolon", `multipart/form-data; boundary="xyz"; `, whole}, {"a boundary with a plus", "multipart/form-data; boundary=x+z", strings.ReplaceAll(whole, "--xyz", "--x+z")}, {"ASCII", "multipart/form-data; charset=us-ascii; boundary=xyz", whole}, {"a boundary and more", "multipart/form-data; boundary=xyz; charset=utf-8", whole}, {"a boundary with a comma", "multipart/form-data; boundary=xyz, boundary=abc", whole}, {"two boundaries", "multipart/form-data; boundary=abc; boundary=xyz", whole}, {"two boundaries turned", "multipart/form-data; boundary=xyz; boundary=abc", whole}, {"an extended boundary", "multipart/form-data; boundary*=utf-8''xyz; boundary=abc", whole}, {"a boundary in pieces", "multipart/form-data; boundary*0=xy; boundary*1=z; boundary=abc", whole}, {"an escaped boundary", `multipart/form-data; boundary="x\yz"`, whole}, {"single quotes", "multipart/form-data; boundary='xyz'", whole}, {"blanks around =", "multipart/form-data; boundary = xyz", whole}, {"no blank", "multipart/form-data;boundary=xyz", whole}, {"no semicolon", "multipart/form-data boundary=xyz", whole}, {"a comma", "multipart/form-data, boundary=xyz", whole}, {"mixed", "multipart/mixed; boundary=xyz", whole}, {"related", "multipart/related; boundary=xyz", whole}, {"upper case", "MULTIPART/FORM-DATA; boundary=xyz", whole}, {"a boundary of another", "multipart/form-data; x=\"boundary=abc\"; boundary=xyz", whole}, {"xboundary", "multipart/form-data; xboundary=abc; boundary=xyz", whole}, {"no boundary", "multipart/form-data", whole}, {"an unclosed boundary", `multipart/form-data; boundary="xyz`, whole},
		{"a preamble", "", "preamble\r\n" + whole}, {"a line before", "", "\r\n" + whole}, {"a line feed before", "", "\n" + whole}, {"an epilogue", "", whole + "epilogue"}, {"a form after it", "", whole + hidden + "--xyz--\r\n"}, {"a part after it", "", whole + hidden}, {"a form before it", "", hidden + "--xyz--\r\n" + whole}, {"a preamble that is a form", "", "--abc\r\nContent-Disposition: form-data; name=\"phone_no\"\r\n\r\n" + k.other + "\r\n--abc--\r\n" + whole},
		{"line feeds", "", strings.ReplaceAll(whole, "\r\n", "\n")}, {"carriage returns", "", strings.ReplaceAll(whole, "\r\n", "\r")}, {"a line feed in the head", "", strings.Replace(whole, "\r\n\r\n", "\n\n", 1)}, {"a line feed after the boundary", "", strings.Replace(whole, "--xyz\r\n", "--xyz\n", 1)}, {"a line feed before the boundary", "", strings.Replace(whole, "\r\n--xyz--", "\n--xyz--", 1)},
		{"no end", "", inner}, {"an end without line", "", strings.TrimSuffix(whole, "\r\n")}, {"half an end", "", inner + "--xyz-"}, {"an end and a letter", "", inner + "--xyz--x\r\n"}, {"an end that goes on", "", inner + "--xyz-- \r\n"}, {"an end of a longer one", "", inner + "--xyzw--\r\n--xyz--\r\n"},
		{"a blank after the boundary", "", strings.Replace(whole, "--xyz\r\n", "--xyz \r\n", 1)}, {"a tab after the boundary", "", strings.Replace(whole, "--xyz\r\n", "--xyz\t\r\n", 1)}, {"letters after the boundary", "", strings.Replace(whole, "--xyz\r\n", "--xyzabc\r\n", 1)}, {"a longer boundary within", "", hidden[:len(hidden)-2] + "\r\n--xyzz\r\n" + whole}, {"a boundary within a line", "", strings.Replace(whole, "\r\n\r\n", "\r\n\r\na--xyz", 1)}, {"a boundary with a line feed within", "", fmt.Sprintf("--xyz\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\na\n%s--xyz--\r\n", strings.ReplaceAll(inner, "\r\n", "\n"))}, {"another boundary within", "", "--xyz\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\na\r\n--xyz \r\n" + strings.TrimPrefix(whole, "--xyz\r\n")}, {"three dashes", "", strings.Replace(whole, "--xyz\r\n", "---xyz\r\n", 1)}, {"one dash", "", strings.Replace(whole, "--xyz\r\n", "-xyz\r\n", 1)},
		{"an empty part", "", "--xyz\r\n" + whole}, {"a part without head", "", "--xyz\r\n\r\n" + whole}, {"a byte order mark", "", "\ufeff" + whole}, {"a line before the value", "", strings.Replace(whole, "\r\n\r\n", "\r\n\r\n\r\n", 1)}, {"a line in the head", "", strings.Replace(whole, "--xyz\r\n", "--xyz\r\n\r\n", 1)}, {"a boundary as value", "", hidden + "--xyz--" + whole}, {"no value", "", strings.Replace(whole, "\r\n\r\n", "\r\n", 1)},
	}
	o := odd[k.IntN(len(odd))]
	if o.kind != "" {
		m.set("Content-Type", o.kind)
	}
	m.body = []byte(o.body)
	m.label("form: %s", o.label)
}

func utf16le(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

// ebcdic are digits as IBM 037 has them.
func ebcdic(digits string) string {
	b := []byte(digits)
	for i := range b {
		b[i] += 0xf0 - '0'
	}
	return string(b)
}

// json carries the number in a JSON body.
func (k *maker) json() *message {
	m := request("POST", "/v1/json")
	text, kind := k.text()
	value := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", `\n`, "\r", `\r`, "\x00", `\u0000`).Replace(text) + `"`
	m.label("json, %s", kind)
	name, other := `"phone_no"`, `"`+k.other+`"`
	odd := []string{
		`{` + name + `:` + value + `}`, `{` + name + `:` + value + `}`, `{` + name + `:` + k.own + `}`, `{` + name + `:` + k.own + `.0}`, `{` + name + `:` + k.own + `e0}`, `{` + name + `:1` + k.own[1:] + `E+0}`, `{` + name + `:-` + k.own + `}`, `{` + name + `:0` + k.own + `}`, `{` + name + `:+` + k.own + `}`, `{` + name + `:[` + value + `]}`, `{` + name + `:{"x":` + value + `}}`, `{` + name + `:[` + value + `,` + other + `]}`, `{` + name + `:true}`, `{` + name + `:null}`,
		`{` + name + `:` + other + `,` + name + `:` + value + `}`, `{` + name + `:` + value + `,` + name + `:` + other + `}`, `{` + name + `:` + other + `,"PHONE_NO":` + value + `}`, `{"PHONE_NO":` + value + `}`, `{"Phone_No":` + value + `,` + name + `:` + other + `}`, `{"phone_no":` + other + `,"phone\u005fno":` + value + `}`, `{"phone\u005fno":` + value + `}`, `{"\u0070hone_no":` + value + `,"phone_no":` + other + `}`, `{"phone_no\u0000":` + value + `}`, `{"phone_no ":` + value + `}`, `{"phone_no[]":` + value + `}`, `{"phone.no":` + value + `}`, `{"phone\_no":` + value + `}`, `{"ｐhone_no":` + value + `}`, `{"phone_no\ud800":` + value + `}`, `{"__proto__":{"phone_no":` + value + `}}`, `{"phoneNo":` + value + `}`, `{"phoneno":` + value + `,"phone_no":` + other + `}`,
		`{'phone_no':` + value + `}`, `{phone_no:` + value + `}`, `{` + name + `:'` + k.own + `'}`, `{/*x*/` + name + `:` + value + `}`, `{` + name + `:` + value + `,}`, `{` + name + `:` + value + `}//`, `{` + name + `:` + value + `}x`, `{` + name + `:` + value + `}{` + name + `:` + other + `}`, `{` + name + `:` + other + "}\n{" + name + `:` + value + `}`, `[{` + name + `:` + value + `}]`, `{"x":{` + name + `:` + value + `}}`, `{"x":{"a":"}",` + name + `:` + other + `},` + name + `:` + value + `}`, `)]}',` + "\n" + `{` + name + `:` + value + `}`, "\x00{" + name + `:` + value + `}`, `{` + name + `:` + value + "}\x00", `{` + name + `:` + value, `{` + name + "\u00a0:" + value + `}`, "{\v" + name + `:` + value + `}`,
		"\ufeff{" + name + `:` + value + `}`, "\xff\xfe" + utf16le(`{`+name+`:`+value+`}`), utf16le(`{` + name + `:` + value + `}`), `{` + name + `:"\u0031` + k.own[1:] + `"}`, `{` + name + `:"\x31` + k.own[1:] + `"}`, `{` + name + `:"` + k.own + `\ud83d"}`, `{` + name + `:"` + k.own + "\xff\"}", `{` + name + `:"` + k.own + "\t\"}", `{` + name + `:"\/` + k.own + `"}`, `{` + name + `:` + k.own + `.5}`, `{` + name + `:1.` + k.own[1:] + `e10}`,
	}
	m.form("application/json", odd[k.IntN(len(odd))])
	m.label("%q", strings.ReplaceAll(strings.ReplaceAll(string(m.body), k.own, "N"), k.other, "Q"))
	switch k.IntN(8) {
	case 0:
		kind := pick(k, "application/json; charset=utf-8", "application/json;charset=utf-16", "application/json; charset=utf-16le", "application/json; charset=iso-8859-1", "application/json; charset=us-ascii", "text/json; charset=utf8", "application/json; charset=utf-7", "application/json;charset=ibm037", "APPLICATION/JSON", "application/vnd.api+json", "text/json", "text/plain", "", "application/json, text/plain", urlencoded, "application/x-json", "application/json-patch+json", "application/json;", "application/jsonp", "application/problem+json; charset=utf-8", "application/json;charset=\"utf-8\"", "application/json; charset=utf-8; charset=utf-16")
		m.set("Content-Type", kind)
		m.label("type %s", kind)
	case 1:
		k.compress(m)
	case 2:
		m.add("Content-Type", pick(k, "text/plain", "application/json", urlencoded))
		m.label("two types")
	case 3:
		m.remove("Content-Type")
		m.label("no type")
	}
	return m
}

// cookie carries the number in a cookie.
func (k *maker) cookie() *message {
	m := request("POST", "/v1/cookie")
	own, plain := k.own, "phone_no="+k.other
	pair := pick(k,
		"phone_no="+own, "phone.no="+own, "phone no="+own, "phone[no="+own, "phone%5Fno="+own, "phone_no%00="+own, "%70hone_no="+own, "phone%2Eno="+own, "phone%20no="+own, "phone+no="+own, "PHONE_NO="+own, "phone_no[]="+own, "phone_no[x]="+own, "phone_no%5B%5D="+own, " phone_no ="+own, "phone_no\t="+own, "\u00a0phone_no="+own, "phone_no"+"\u00a0="+own, "\"phone_no\"="+own, "$phone_no="+own, "phone_no.="+own, "[phone_no]="+own,
		"phone_no= "+own, "phone_no=="+own, "phone_no=\""+own+"\"", "phone_no="+own+"\"", "phone_no=\""+own, "phone_no='"+own+"'", "phone_no="+percent(own), "phone_no=%31"+own[1:], "phone_no="+own+"%00", "phone_no="+own+"%20", "phone_no="+own+"+", "phone_no="+own+"%", "phone_no="+own+"%zz", "phone_no="+own+"%2", "phone_no=%22"+own+"%22", "phone_no=j:\""+own+"\"", "phone_no=j:"+own, "phone_no=j%3A%22"+own+"%22", "phone_no=j:[\""+own+"\",\""+k.other+"\"]", "phone_no=j%3A%7B%22x%22%3A%22"+own+"%22%7D", "phone_no=s:"+own+".x", "phone_no=\"\\061"+own[1:]+"\"", "phone_no="+own+"%80", "phone_no="+own+"\xff", "phone_no="+own+"\u00a0", "phone_no="+own+",x=1", "phone_no="+own+":", "phone_no="+own+"%3Bx", "phone_no=\""+own+"; x=y\"", "phone_no="+own+"%2525", "phone_no=%2531"+own[1:], "phone_no="+own+"/", "phone_no="+own+"&x=1", "phone_no="+own+" x", "phone_no="+own+"\tx", "phone_no=j:1e"+own, "phone_no=j:"+own+".0", "phone_no="+own+"%EF%BC%90", "phone_no="+own+"@", "phone_no={"+own+"}", "phone_no="+own+"%c0%b0")
	m.label("cookie %q", strings.ReplaceAll(strings.ReplaceAll(pair, own, "N"), k.other, "Q"))
	text := pair
	switch k.IntN(8) {
	case 0:
		between := pick(k, "; ", ";", ", ", ",", " ", "&", ";;", "\t", "; $Path=/; ", ";\t", ";\u00a0")
		text = pick(k, plain+between+pair, pair+between+plain, "a=b"+between+pair, "a"+between+pair, "a=\"x"+between+pair, "a=\"x"+between+pair+"\"", "=x"+between+pair)
		m.label("divided by %q", between)
	case 1:
		text = "$Version=" + pick(k, "1", "\"1\"", "0") + "; " + pair + "; $Path=/"
		m.label("with a version")
	case 2:
		m.add(pick(k, "Cookie", "cookie"), pick(k, plain, "a=b", ""))
		m.label("two fields")
	case 3:
		m.add(pick(k, "Cookie2", "Cookie_", "_Cookie", "Set-Cookie"), plain)
		m.label("another field")
	}
	m.add("Cookie", text)
	return m
}
