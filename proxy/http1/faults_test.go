package http1

import (
	"errors"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A fault is one that a server or a proxy had and that let somebody smuggle, poison,
// spy or stop. It is held down by bytes that are tried here, wherever they are split,
// or by tests that it names.
type fault struct {
	fault, rule string
	requests    []refusal // what is no request
	reads       []reading // what is one, and which
	answers     []refusal // what is no answer to GET
	chunks      []refusal // what is no chunked body
	tests       []string  // of this package, or dir.Test of another
}

// A refusal is a message, with bars for CRLF, and why it is refused.
type refusal struct {
	raw  string
	want error
}

// A reading is a message, with bars for CRLF, and the beginning of what seen says of it.
type reading struct{ raw, want string }

func faults() []fault {
	return slices.Concat(requestLineFaults(), hostFaults(), fieldFaults(), lengthFaults(), chunkFaults(), bodyFaults(), interimFaults(), connectionFaults(), outputFaults())
}

// Faults that others had to mend are none of ours.
func TestFaults_KnownVulnerabilities(t *testing.T) {
	all := faults()
	if len(all) != 70 {
		t.Errorf("%d faults are listed; want 70", len(all))
	}
	for _, f := range all {
		for _, r := range f.requests {
			if _, _, err := requestSplit(t, lined(r.raw)); !errors.Is(err, r.want) {
				t.Errorf("%s: %q: got %v; want %v", f.fault, r.raw, err, r.want)
			}
		}
		for _, r := range f.reads {
			if got, _, err := requestSplit(t, lined(r.raw)); err != nil || !strings.HasPrefix(seen(got), r.want) {
				t.Errorf("%s: %q: got %s, %v; want %s", f.fault, r.raw, seen(got), err, r.want)
			}
		}
		for _, r := range f.answers {
			if _, _, err := responseSplit(t, lined(r.raw), "GET"); !errors.Is(err, r.want) {
				t.Errorf("%s: %q: got %v; want %v", f.fault, r.raw, err, r.want)
			}
		}
		for _, r := range f.chunks {
			if _, _, err := chunksSplit(t, lined(r.raw)); !errors.Is(err, r.want) {
				t.Errorf("%s: %q: got %v; want %v", f.fault, r.raw, err, r.want)
			}
		}
	}
}

// The tests that hold a fault down are there.
func TestFaults_HaveTests(t *testing.T) {
	known := map[string][]string{}
	for _, f := range faults() {
		if f.fault == "" || f.rule == "" || len(f.requests)+len(f.reads)+len(f.answers)+len(f.chunks)+len(f.tests) == 0 {
			t.Errorf("%q: nothing holds it down", f.fault)
		}
		for _, name := range f.tests {
			dir, test, other := strings.Cut(name, ".")
			if !other {
				dir, test = "http1", name
			}
			if known[dir] == nil {
				known[dir] = testsIn(t, filepath.Join("..", dir))
			}
			if !slices.Contains(known[dir], test) {
				t.Errorf("%s: there is no test %s", f.fault, name)
			}
		}
	}
}

// testsIn are the names of the tests and fuzz targets in a directory.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// Faults in finding the end of a body.

func lengthFaults() []fault {
	const post, ok = "POST / HTTP/1.1|Host: a|", "HTTP/1.1 200 OK|"
	return []fault{
		{fault: "an empty length is 0, or any", rule: "a length has one to eighteen digits",
			requests: []refusal{{post + "Content-Length: ||", ErrContentLength}, {post + "Content-Length: |Content-Length: 43||", ErrContentLengthRepeated}}, answers: []refusal{{ok + "Content-Length:||", ErrContentLength}}},
		{fault: "a length is read by what reads numbers of a language", rule: "it is digits and nothing else",
			requests: []refusal{{post + "Content-Length: +5||", ErrContentLength}, {post + "Content-Length: 0x5||", ErrContentLength}, {post + "Content-Length: 1_0||", ErrContentLength}, {post + "Content-Length: -48||", ErrContentLength}, {post + "Content-Length: 1 2||", ErrContentLength}, {post + "Content-Length: 5.0||", ErrContentLength}},
			answers:  []refusal{{ok + "Content-Length: +5||", ErrContentLength}}, reads: []reading{{post + "Content-Length: 010||", "POST / host=a path=/ query=false 1 {1 10} "}}},
		{fault: "several lengths, of which one is taken", rule: "there is one line, and it is no list",
			requests: []refusal{{post + "Content-Length: 1|Content-Length: 0||", ErrContentLengthRepeated}, {post + "Content-Length: 5|content-length: 5||", ErrContentLengthRepeated}, {post + "Content-Length: 5, 5||", ErrContentLength}},
			answers:  []refusal{{ok + "Content-Length: 5|Content-Length: 6||", ErrContentLengthRepeated}, {ok + "Content-Length: 5, 5||", ErrContentLength}}},
		{fault: "a length that wraps", rule: "more digits than 63 bits certainly hold are refused",
			requests: []refusal{{post + "Content-Length: 18446744073709551617||", ErrContentLength}, {post + "Content-Length: 9223372036854775808||", ErrContentLength}}, answers: []refusal{{ok + "Content-Length: 18446744073709551617||", ErrContentLength}}},
		{fault: "a body that came short counts as sent", rule: "who sends counts; a short body ends the connection",
			tests: []string{"TestForward_TruncatedRequestIsNotCompleted", "TestServer_WrongBodyLengths"}},
		{fault: "both a length and a coding are sent on", rule: "a message has one of them",
			requests: []refusal{{post + "Transfer-Encoding: chunked|Content-Length: 5||", ErrLengthAndTransferCoding}, {post + "Content-Length: 0|Transfer-Encoding: chunked||0||G", ErrLengthAndTransferCoding}},
			answers:  []refusal{{ok + "Transfer-Encoding: chunked|Content-Length: 5||", ErrLengthAndTransferCoding}}},
		{fault: "an unknown coding is taken for chunked", rule: "chunked is the only one",
			requests: []refusal{{post + "Transfer-Encoding: xchunked||", ErrTransferCoding}, {post + "Transfer-Encoding: chunkedx||", ErrTransferCoding}, {post + "Transfer-Encoding: gzip||", ErrTransferCoding}, {post + "Transfer-Encoding: identity||", ErrTransferCoding}},
			answers:  []refusal{{ok + "Transfer-Encoding: identity||", ErrTransferCoding}}},
		{fault: "lists and lines of codings are understood differently", rule: "there are none",
			requests: []refusal{{post + "Transfer-Encoding: ,chunked||", ErrTransferCoding}, {post + "Transfer-Encoding:||", ErrTransferCoding}, {post + "Transfer-Encoding: chunked, identity||", ErrTransferCoding}, {post + "Transfer-Encoding: chunked|Transfer-Encoding: chunked||", ErrTransferCoding}, {post + "Transfer-Encoding: chunked|Transfer-Encoding: identity||", ErrTransferCoding}},
			answers:  []refusal{{ok + "Transfer-Encoding: chunked, chunked||", ErrTransferCoding}, {ok + "Transfer-Encoding: identity|Transfer-Encoding: chunked||", ErrTransferCoding}}},
		{fault: "a coding in HTTP/1.0 is obeyed by some", rule: "it is refused, whatever the status",
			requests: []refusal{{"POST / HTTP/1.0|Transfer-Encoding: chunked||", ErrTransferCodingHTTP10}}, answers: []refusal{{"HTTP/1.0 302 Found|Transfer-Encoding: chunked||", ErrTransferCodingHTTP10}}},
	}
}

func chunkFaults() []fault {
	return []fault{
		{fault: "the size of a chunk wraps", rule: "it has at most fifteen digits",
			chunks: []refusal{{"FFFFFFFFFFFFFFFFF|", ErrChunk}, {"10000000000000005|hello|0||", ErrChunk}}, tests: []string{"TestChunked_SizesBeyond32Bits"}},
		{fault: "the size of a chunk is read as numbers of a language are", rule: "it is hexadecimal digits, and an end or a semicolon follows",
			chunks: []refusal{{"0_2e|", ErrChunk}, {"+5|hello|0||", ErrChunk}, {" 5|hello|0||", ErrChunk}, {"5 |hello|0||", ErrChunk}, {"0x5|hello|0||", ErrChunk}, {"-1|", ErrChunk}}},
		{fault: "a line feed alone ends the line of a chunk", rule: "a carriage return comes before it",
			chunks: []refusal{{"5\nhello|0||", ErrChunk}, {"5;a\nhello|0||", ErrChunk}, {"0\n\n", ErrChunk}}},
		{fault: "line ends inside of an extension, quoted or not, end the line for one side", rule: "there are none, and no quotes; what an extension says is dropped",
			chunks: []refusal{{"2\r\r;a|ab|0||", ErrChunk}, {"5;a\nb|hello|0||", ErrChunk}, {"1;e=\"|X|0||GET /s", ErrChunk}, {"5;a\rb|hello|0||", ErrChunk}}, tests: []string{"TestForward_Requests"}},
		{fault: "endless extensions", rule: "a line is bounded, and so are all lines beyond what there is of data",
			chunks: []refusal{{"1;" + strings.Repeat("a", 4096) + "|x|0||", ErrChunkLine}, {strings.Repeat("1;"+strings.Repeat("a", 200)+"|x|", 200), ErrChunkOverhead}}},
		{fault: "what follows the data of a chunk is not looked at, or an empty size is 0", rule: "a line end follows, and a size has a digit",
			chunks: []refusal{{"5|helloXX0||", ErrChunk}, {"5|hello|||", ErrChunk}, {"|", ErrChunk}, {";a|", ErrChunk}}, tests: []string{"TestBody_InvalidTrailers"}},
		{fault: "trailer fields become fields of the head, or are not read to their end", rule: "they are read as fields are and kept apart, and those that say how to read, route or trust a message are dropped",
			tests: []string{"TestBody_InvalidTrailers", "TestForward_BadBodies", "TestForward_Requests", ".TestForward_TrailersThatMayPassForHeader", ".TestRules_Trailers"}},
		{fault: "writing nothing writes the last chunk", rule: "nothing is no chunk, and only the end writes the last one",
			tests: []string{"TestServer_Streams", "TestChunked_RoundTrip"}},
	}
}

func bodyFaults() []fault {
	return []fault{
		{fault: "the body of a HEAD request is taken for the next request", rule: "how a request is framed does not depend on its method",
			reads: []reading{{"HEAD / HTTP/1.1|Host: a|Content-Length: 30||GET /s HTTP/1.1|Host: a||", "HEAD / host=a path=/ query=false 1 {1 30} "}, {"GET / HTTP/1.1|Host: a|Transfer-Encoding: chunked||", "GET / host=a path=/ query=false 1 {2 -1} "}},
			tests: []string{"TestServer_PipelinedAtEverySplit"}},
		{fault: "a client sends a body that it has not framed", rule: "what frames a body is made of the body alone",
			tests: []string{"TestFraming_Outgoing", "TestForward_Requests", "TestSource_AllKinds"}},
		{fault: "answers that have no body are waited for, or leave bytes behind", rule: "HEAD, 1xx, 204 and 304 have none, and what follows ends the connection",
			tests: []string{"TestResponse_Framing", "TestForward_BytesAfterBodylessResponse", "TestForward_Responses"}},
		{fault: "an answer without framing is lost, or a request without it read to the end", rule: "the one ends with its connection, the other has no body",
			reads: []reading{{"POST / HTTP/1.1|Host: a||rest", "POST / host=a path=/ query=false 1 {0 -1} "}}, tests: []string{"TestResponse_Framing", "TestForward_Responses"}},
		{fault: "lines of chunks in the middle of a page", rule: "one place decides how a body is sent on, and nothing received decides with it",
			tests: []string{"TestFraming_Outgoing", "TestForward_Responses"}},
		{fault: "words of an error at the end of an answer that was cut", rule: "a cut answer has no last chunk, and ends with its connection",
			tests: []string{"TestForward_TruncatedResponseStaysTruncated"}},
	}
}

// Faults in what follows one another on a connection, and in what is written.

func interimFaults() []fault {
	const post = "POST / HTTP/1.1|Host: a|"
	return []fault{
		{fault: "the body that a final answer instead of 100 has left is taken for a request, or an answer", rule: "whoever was not told to go on owes a body: both connections end",
			tests: []string{"TestServer_Expect", "TestUpload_Expect"}},
		{fault: "an interim answer uses up the request, and all later answers go astray", rule: "only a final answer ends an exchange",
			tests: []string{"TestForward_InterimResponses", "TestState_EachResponseReachesItsRequest"}},
		{fault: "100 twice, and no final answer", rule: "a client gets at most one",
			tests: []string{"TestUpload_Expect"}},
		{fault: "interim answers without end, or with fields of the upstream's connection", rule: "their number and the time for all of them are bounded, they are stripped as others are, and HTTP/1.0 gets none",
			tests: []string{"TestForward_BadResponses", "TestTimeout_Upstream", "TestForward_InterimResponses", "TestServer_Interim"}},
		{fault: "expectations in HTTP/1.0, in one spelling only, or after the answer", rule: "HTTP/1.1 has one, in any case; any other is refused; none without a body",
			requests: []refusal{{post + "Expect: foo|Content-Length: 1||", ErrExpectation}, {post + "Expect: 100-continue, foo|Content-Length: 1||", ErrExpectation}, {post + "Expect: 100-continue|Expect: foo|Content-Length: 1||", ErrExpectation}},
			reads:    []reading{{"POST / HTTP/1.0|Expect: foo|Content-Length: 1||", "POST / "}, {post + "Expect: 100-CONTINUE|Content-Length: 1||", "POST / "}}, tests: []string{"TestServer_Expect"}},
		{fault: "what follows a request to upgrade is sent on before the upstream has agreed", rule: "it stays here until 101, and is the next request otherwise",
			tests: []string{"TestUpgrade_Refused", "TestUpgrade_Tunnel"}},
		{fault: "another status than 101, or another protocol, opens a tunnel", rule: "only 101 to what was asked for, by both fields, and never with a body",
			tests: []string{"TestUpgrade_Refused", "TestUpgrade_ToAnotherProtocol", "TestForward_Requests", "upstream.TestForward_UpgradesOnlyAllowedWebSocket"}},
		{fault: "bytes in a buffer are lost when a connection is handed over", rule: "it is handed over together with them",
			tests: []string{"TestUpgrade_Tunnel", "TestServer_HandsHTTP2Over", "TestSwitchProtocols_HandsOverUnreadBytes"}},
		{fault: "what follows CONNECT is read as a request, or sent to a pooled connection", rule: "CONNECT is refused, and nothing is read behind it",
			requests: []refusal{{"CONNECT a:1 HTTP/1.1|Host: a:1||GET /", ErrConnect}, {"CONNECT / HTTP/1.1|Host: a||", ErrConnect}}, tests: []string{"TestServer_RejectsAndCloses", ".TestNormalize_NoTunnelInHTTP2"}},
	}
}

func connectionFaults() []fault {
	return []fault{
		{fault: "a connection that still owes the rest of a request is used again", rule: "it is kept only if the request was sent whole and the answer read whole",
			tests: []string{"TestUpload_EarlyResponse", "TestState_EachResponseReachesItsRequest"}},
		{fault: "bytes behind an answer become the next one", rule: "a connection with anything left, or anything that comes unasked, is closed",
			tests: []string{"TestForward_BytesAfterBodylessResponse", "TestForward_UnsolicitedBytesAreNotResponses", "TestTLS_UnsolicitedBytesAreNotResponses"}},
		{fault: "the rest of a body that nobody has read is taken for a request", rule: "a little is read, and otherwise the connection ends",
			tests: []string{"TestServer_UnreadBodies", ".TestUnread_BehindARequest"}},
		{fault: "requests behind one that was bad are served", rule: "a bad head, or body, is the end of its connection",
			tests: []string{"TestServer_RejectsAndCloses", "TestForward_BadBodies"}},
		{fault: "a parser keeps something of the request before", rule: "each request begins with nothing, wherever the bytes are split",
			tests: []string{"TestServer_PipelinedAtEverySplit", "FuzzRequest", "FuzzChunked"}},
		{fault: "a request is sent again whose body is gone, or that may have been carried out", rule: "again only over a kept connection, without an answer, and if it does no harm",
			tests: []string{"TestForward_StaleConnections", "TestReuseAttempt_SkipsStaleConnections", "upstream.TestRetry_Resets"}},
		{fault: "a request meets the end of an idle connection, or a reset destroys the answer to a bad one", rule: "a request is either answered or not carried out; a refused client can read why while it still sends",
			tests: []string{"TestServer_RequestAtIdleTimeout", "TestServer_LingersAfterRejection"}},
		{fault: "a client that sends no more is cut off, or keeps a loop busy", rule: "it gets its answer",
			tests: []string{"TestServer_HalfClosed", ".TestHalf_TheAnswerComes"}},
		{fault: "a body that is announced never comes, or a byte at a time", rule: "heads, bodies and answers have time limits, and bodies a least rate",
			tests: []string{"TestTimeout_HeaderByteByByte", "TestTimeout_BodyWithoutProgress", "TestTimeout_BodyTooSlow", "TestTimeout_Write", "TestTimeout_Upstream"}},
		{fault: "a connection that one user was authenticated on serves another", rule: "NTLM and Negotiate end the connection they came on",
			tests: []string{"TestForward_ConnectionBoundAuthentication"}},
		{fault: "an object is given back twice, or by who does not own it, and two requests share it", rule: "the goroutine that owns it gives it back, in one place",
			tests: []string{"TestServer_ExchangesDoNotShareMemory"}},
	}
}

func outputFaults() []fault {
	return []fault{
		{fault: "a decoded line end, or a value of a template, begins another line", rule: "every name, value and target that is written is checked, and nothing is decoded to be sent on",
			tests: []string{"TestHead_RejectsLineBreaks", "TestServer_InvalidOutgoingFields", "TestForward_Requests", "TestCall_InvalidHost"}},
		{fault: "a status with more digits, or a head that is not whole", rule: "three digits from 100 on, and a whole head or none",
			answers: []refusal{{"HTTP/1.1 2000 OK||", ErrStatusLine}, {"HTTP/1.1 20 OK||", ErrStatusLine}, {"HTTP/11 200 OK||", ErrStatusLine}, {"HTTP/1.1 200\x00OK||", ErrStatusLine}, {"HTTP/1.1 +20 OK||", ErrStatusLine}},
			tests:   []string{"TestForward_BadResponses"}},
		{fault: "a request goes round in circles, or names codings for a connection it never sees", rule: "Via tells a loop, Max-Forwards is counted down, and of TE only trailers is sent, by our own word",
			tests: []string{"TestForward_TEIsGenerated", ".TestRules_Loops", ".TestRules_Hops", "upstream.TestPool_DetectsLoops", "upstream.TestForward_RejectsInvalidRequests"}},
	}
}

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
