//go:build parsers

package parsers

import (
	"regexp"
	"slices"
	"strings"
)

// A known difference has a reason, and a section that says who may be of that mind.
type known struct {
	parser string
	error  string // with which the other refuses what Weir accepts, or in what it differs
	of     func(m message, other reading, raw string) bool
	reason string
}

// A disagreement is what Weir and another parser have read of the same bytes.
type disagreement struct {
	parser     string
	m          message
	other      reading
	difference string
	raw        string
}

func differences() []known {
	return []known{
		{"llhttp", "HPE_INVALID_METHOD", func(m message, _ reading, _ string) bool { return !slices.Contains(registered(), m.what) },
			"any token may be a method, and llhttp knows a list of them (RFC 9110 section 9.1)"},
		{"llhttp", "HPE_PAUSED_UPGRADE", func(message, reading, string) bool { return true },
			"llhttp leaves what follows a request to upgrade to its user; Weir does until 101, and it is a request otherwise (RFC 9110 section 7.8)"},
		{"llhttp", "HPE_INVALID_TRANSFER_ENCODING", chunked, "a trailer field that says how to read the message is dropped (RFC 9110 section 6.5.1)"},
		{"llhttp", "HPE_INVALID_CONTENT_LENGTH", chunked, "a trailer field that says how to read the message is dropped (RFC 9110 section 6.5.1)"},
		{"llhttp", "HPE_INVALID_CONTENT_LENGTH Invalid character in Content-Length", func(m message, _ reading, _ string) bool { return !chunked(m, reading{}, "") },
			"a tab after a length is a blank like any other (RFC 9110 section 5.5)"},
		{"llhttp", "HPE_UNEXPECTED_CONTENT_LENGTH", chunked, "a trailer field that says how to read the message is dropped (RFC 9110 section 6.5.1)"},
		{"llhttp", "HPE_STRICT Invalid character in chunk extensions", chunked, "what an extension says is not looked at, and nothing of it is sent on (RFC 9112 section 7.1.1)"},
		{"llhttp", "HPE_CLOSED_CONNECTION", closedBefore, "neither an interim answer nor a trailer field ends a connection (RFC 9110 sections 15.2 and 6.5.1)"},
		{"hyper", "invalid URI", func(m message, _ reading, _ string) bool { return m.target != "" },
			"printable bytes that no URI has are sent on in a target as they are (RFC 9112 section 3)"},
		{"llhttp", "HPE_CR_EXPECTED", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_HEADER_TOKEN Invalid header", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_STATUS", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_LF_EXPECTED", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_HEADER_TOKEN", answerWith(blankBeforeColon), "blanks before the colon in an answer are left out (RFC 9112 section 5.1)"},
		{"hyper", "invalid HTTP header parsed", answerWith(blankBeforeColon), "blanks before the colon in an answer are left out (RFC 9112 section 5.1)"},
		{"hyper", "error reading a body", answerWith(blankBeforeColon), "blanks before the colon in an answer are left out (RFC 9112 section 5.1)"},
		{"hyper", "error reading a body", answerWith(loneLF), "a line of an answer may end with LF alone (RFC 9112 section 2.2)"},
		{"llhttp", "HPE_INVALID_CHUNK_SIZE", answerWith(blankAfterSize), "blanks after the size of a chunk in an answer are left out (RFC 9112 section 7.1.1)"},
		{"llhttp", "body", answerWith(tabAfterCoding), "a tab after a coding is a blank like any other (RFC 9110 section 5.5)"},
		{"llhttp", "body", resetContent, "a body of a 205 is left out (RFC 9110 section 15.3.6)"},
		{"hyper", "body", resetContent, "a body of a 205 is left out (RFC 9110 section 15.3.6)"},
		{"llhttp", "HPE_UNEXPECTED_CONTENT_LENGTH Duplicate", answerWith(repeatedLength), "an answer may repeat its length (RFC 9112 section 6.3)"},
	}
}

// registered are the methods that llhttp knows, of those that are not for another
// protocol.
func registered() []string {
	return strings.Fields("DELETE GET HEAD POST PUT CONNECT OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PATCH PURGE MKCALENDAR LINK UNLINK SOURCE QUERY")
}

// What Weir takes in an answer and never in a request, for an answer is of the server that
// the operator chose.
var (
	loneLF           = regexp.MustCompile(`[^\r]\n`)
	blankBeforeColon = regexp.MustCompile(`\n[!-9;-~]+[ \t]+:`)
	blankAfterSize   = regexp.MustCompile(`\n[0-9a-fA-F]+[ \t]+[\r\n;]`)
	tabAfterCoding   = regexp.MustCompile(`(?i)chunked[ \t]*\t`)
	repeatedLength   = regexp.MustCompile(`(?is)\ncontent-length[ \t]*:.*\ncontent-length[ \t]*:`)
)

func answerWith(this *regexp.Regexp) func(message, reading, string) bool {
	return func(m message, _ reading, raw string) bool { return m.target == "" && this.MatchString(raw) }
}

func resetContent(m message, _ reading, _ string) bool { return m.what == "205" && m.body == "" }

func chunked(m message, _ reading, _ string) bool {
	return slices.ContainsFunc(m.fields, func(line string) bool { return strings.EqualFold(line, "transfer-encoding: chunked") })
}

// closedBefore reports whether what ended the connection for the other was no field of a
// request, nor of a final answer.
func closedBefore(m message, other reading, _ string) bool {
	if m.target == "" { // interim answers have been taken out
		return len(other.messages) == 0
	}
	last := other.messages[len(other.messages)-1]
	return chunked(last, other, "") && slices.ContainsFunc(last.trailer, func(line string) bool { return strings.HasPrefix(line, "connection: ") })
}

// reason is why another parser refuses what Weir has read as m, or has another body in it, if
// that is known. There is none for another method, status, target or field.
func (d *disagreement) reason() (string, bool) {
	for _, k := range differences() {
		if k.parser == d.parser && strings.HasPrefix(strings.TrimPrefix(d.difference, nothingRead), k.error) && k.of(d.m, d.other, d.raw) {
			return k.reason, true
		}
	}
	return "", false
}
