package http1

import "strings"

// Faults in reading a head.

func requestLineFaults() []fault {
	const host = "|Host: a||"
	return []fault{
		{fault: "several blanks, or a line feed, between the parts of the request line", rule: "exactly one space separates them",
			requests: []refusal{{"GET  / HTTP/1.1" + host, ErrTarget}, {"GET /\nHTTP/1.1" + host, ErrTarget}, {"GET / \tHTTP/1.1" + host, ErrVersion}}},
		{fault: "a version or a method of which only the beginning is looked at", rule: "the version is eight bytes, the method is a token to its end",
			requests: []refusal{{"GET / HTTP/1.32" + host, ErrVersion}, {"GET / HTTP/4294967295.255" + host, ErrMajorVersion}, {"\x00 / HTTP/1.1" + host, ErrMethod}, {"GET\x00 / HTTP/1.1" + host, ErrMethod}},
			reads:    []reading{{"get / HTTP/1.1" + host, "get /"}}},
		{fault: "a target that does not begin with a slash is taken for an authority", rule: "the method tells which forms there are",
			requests: []refusal{{"GET admin HTTP/1.1" + host, ErrTarget}, {"GET * HTTP/1.1" + host, ErrTarget}, {"GET a:80 HTTP/1.1" + host, ErrTarget}, {"OPTIONS *x HTTP/1.1" + host, ErrTarget}}},
		{fault: "a fragment in the target, which hides how a path ends", rule: "a target has no fragment",
			requests: []refusal{{"GET /x#.png HTTP/1.1" + host, ErrTarget}, {"GET http://a/#x HTTP/1.1" + host, ErrTarget}}},
		{fault: "control characters, and bytes beyond ASCII, in the target", rule: "a target is printable ASCII, and is not decoded",
			requests: []refusal{{"GET /\xff HTTP/1.1" + host, ErrTarget}, {"GET /\x0c HTTP/1.1" + host, ErrTarget}, {"GET /\x7f HTTP/1.1" + host, ErrTarget}, {"GET /\x00 HTTP/1.1" + host, ErrTarget}},
			reads:    []reading{{"GET /%00%ff HTTP/1.1" + host, "GET /%00%ff host=a path=/%00%ff "}}},
		{fault: "a path that begins with two slashes is read as an authority", rule: "a path stays a path",
			requests: []refusal{{`GET http:\\a/ HTTP/1.1` + host, ErrTarget}, {`GET http://a\b/ HTTP/1.1` + host, ErrTarget}},
			reads:    []reading{{"GET //evil/x HTTP/1.1" + host, "GET //evil/x host=a path=//evil/x "}}},
		{fault: "parameters that one side cannot read are sent on, and read by the other", rule: "the query is sent on as it came; a key in one that cannot be read is ambiguous",
			reads: []reading{{"GET /?a=%zz&a=1 HTTP/1.1" + host, "GET /?a=%zz&a=1 host=a path=/ query=truea=%zz&a=1 "}},
			tests: []string{"TestForward_Requests", "key.TestExtract_TwiceIsAmbiguous", "key.TestExtract_QueryBesideAForm"}},
	}
}

func hostFaults() []fault {
	const get = "GET / HTTP/1.1|"
	return []fault{
		{fault: "the target's authority and Host disagree, and each is read by somebody", rule: "that of the target is the host, and Host is made of it",
			reads: []reading{{"GET http://b/ HTTP/1.1|Host: a||", "GET http://b/ host=b path=/ "}}, tests: []string{"TestForward_Requests"}},
		{fault: "ports that wrap, half an address, a user name in the host", rule: "one reader of hosts; a port is at most 65535, an address is whole, there is no user",
			requests: []refusal{{get + "Host: a:80:80||", ErrHost}, {get + "Host: a:65616||", ErrHost}, {get + "Host: [::1||", ErrHost}, {get + "Host: [::1]x||", ErrHost}, {get + "Host: a:+80||", ErrHost}, {get + "Host: u@a||", ErrHost}, {"GET http://u@h/ HTTP/1.1|Host: h||", ErrTarget}}},
		{fault: "no Host, several, or one with a blank", rule: "HTTP/1.1 has exactly one, which is a host",
			requests: []refusal{{get + "Host: a|Host: b||", ErrHostRepeated}, {get + "Host: a|HOST: a||", ErrHostRepeated}, {get + "Host: a b||", ErrHost}, {get + "|", ErrHostMissing}, {get + "Host: ||", ErrHost}, {"GET / HTTP/1.0|Host: a|Host: b||", ErrHostRepeated}}},
		{fault: "a Host with the beginning of a path is put into a URL", rule: "the same bytes make a host when it is read and when it is written",
			requests: []refusal{{get + "Host: a/x?||", ErrHost}, {get + "Host: a?x||", ErrHost}, {get + "Host: a#x||", ErrHost}, {get + `Host: a\x||`, ErrHost}},
			tests:    []string{"TestCall_InvalidHost"}},
	}
}

func fieldFaults() []fault {
	const get, post, ok = "GET / HTTP/1.1|Host: a|", "POST / HTTP/1.1|Host: a|", "HTTP/1.1 200 OK|"
	return []fault{
		{fault: "a blank before the colon", rule: "there is none in a request, and that of an answer is left out",
			requests: []refusal{{post + "Content-Length : 5||hello", ErrFieldName}, {post + "Transfer-Encoding\t: chunked||", ErrFieldName}}, tests: []string{"TestBody_InvalidTrailers", "TestResponse_Framing"}},
		{fault: "a line that begins with a blank hides a field", rule: "no line does, and nothing is unfolded",
			requests: []refusal{{"GET / HTTP/1.1| Content-Length: 5|Host: a||", ErrFoldedLine}, {post + "Transfer-Encoding:| chunked||", ErrFoldedLine}, {get + "X: a|\tb||", ErrFoldedLine}},
			answers:  []refusal{{"HTTP/1.1 200 OK| Content-Length: 5||", ErrFoldedLine}}},
		{fault: "an empty name ends the list of fields", rule: "a name has at least one letter",
			requests: []refusal{{get + ": x||", ErrFieldName}, {get + ":||", ErrFieldName}}, answers: []refusal{{ok + ": x||", ErrFieldName}}},
		{fault: "bad names, and lines without a colon, are sent on or passed over", rule: "they are refused",
			requests: []refusal{{get + "Header\x85: v||", ErrFieldName}, {get + "Te\nst: x||", ErrFieldName}, {get + "nonsense||", ErrFieldName}, {get + "(a): b||", ErrFieldName}},
			answers:  []refusal{{ok + "nonsense||", ErrFieldName}}},
		{fault: "NUL in a value is sent on, or ends it", rule: "a value has no control character but the tab",
			requests: []refusal{{"GET / HTTP/1.1|Host: good\x00.evil||", ErrFieldValue}, {get + "X: \x01||", ErrFieldValue}, {get + "X: a\x7f||", ErrFieldValue}},
			answers:  []refusal{{ok + "X: a\x00b||", ErrFieldValue}}},
		{fault: "a carriage return alone ends a line, or a head", rule: "a line feed follows it, everywhere",
			requests: []refusal{{get + "\rZGET /e HTTP/1.1||", ErrLineEnd}, {get + "X: a\rb||", ErrLineEnd}, {"GET / HTTP/1.1\rHost: a||", ErrLineEnd}},
			answers:  []refusal{{ok + "X: a\rb||", ErrLineEnd}}},
		{fault: "a line feed alone ends a line", rule: "a carriage return comes before it, everywhere",
			requests: []refusal{{get + "X: a\nContent-Length: 0||", ErrLineEnd}, {"GET / HTTP/1.1\nHost: a||", ErrLineEnd}, {"GET / HTTP/1.1|Host: a\n\n", ErrLineEnd}},
			answers:  []refusal{{ok + "X: a\rContent-Length: 0||", ErrLineEnd}}},
		{fault: "blanks of Unicode, and vertical tabs, are trimmed", rule: "only space and tab are blanks",
			requests: []refusal{{post + "Transfer-Encoding: \x0bchunked||", ErrFieldValue}, {post + "Transfer-Encoding: chunked\x85||", ErrTransferCoding}, {post + "Transfer-Encoding: \xa0chunked||", ErrTransferCoding}, {post + "Content-Length: 5\xa0||", ErrContentLength}}},
		{fault: "lengths of names and values kept in 8 or 16 bits", rule: "they are kept whole, and limits come first",
			reads: []reading{{get + strings.Repeat("n", 300) + ": v||", "GET / host=a path=/ query=false 1 {0 -1} close=false [Host: a] [nnn"}},
			tests: []string{"TestRequest_LongFieldsAreKeptWhole"}},
		{fault: "fields beyond a limit are hidden from one side", rule: "beyond a limit there is no request",
			requests: []refusal{{get + strings.Repeat("A: b|", 300) + "Content-Length: 5||", ErrTooManyFields}, {"GET / HTTP/1.1|" + strings.Repeat("a:|", 20000) + "|", ErrTooManyFields}, {get + "X: " + strings.Repeat("a", 70_000) + "||", ErrTooLarge}},
			answers:  []refusal{{ok + strings.Repeat("A: b|", 300) + "Content-Length: 5||", ErrTooManyFields}}},
		{fault: "another case, or an underscore, gets a field past who takes it out", rule: "names are compared in any case, and underscores as hyphens where a field is the proxy's own",
			tests: []string{"TestFields_Drop", "upstream.TestRequest_ForwardedFields", ".TestConfusable_OurOwnFields"}},
		{fault: "a client names the proxy's own fields in Connection, and they are taken out", rule: "what belongs to the connection goes first, and the proxy's own comes last",
			tests: []string{"upstream.TestRequest_ForwardedFields", ".TestConnection_NamesNoFieldThatIsRead", "TestFields_StripHopByHop"}},
		{fault: "of Connection only the first line, or only the whole value, is looked at", rule: "each line is a list",
			reads: []reading{
				{get + "Connection: x|Connection: foo, Close||", "GET / host=a path=/ query=false 1 {0 -1} close=true"},
				{get + "Connection: closet||", "GET / host=a path=/ query=false 1 {0 -1} close=false"},
			}, tests: []string{"TestFields_StripHopByHop"}},
	}
}
