package http1

import "strings"

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
