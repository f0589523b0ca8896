package http1

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
			tests: []string{"TestUpgrade_Refused", "TestUpgrade_ToAnotherProtocol", "TestRequest_Upgrade", "TestForward_Requests", "upstream.TestForward_UpgradesOnlyAllowedWebSocket"}},
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
