package weir;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.servlet.MultipartConfigElement;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.catalina.startup.Tomcat;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * One servlet in two containers, which route and read parameters, cookies and parts each in its
 * own way: {@code java weir.Readers PORT tomcat|jetty FOLDER}.
 */
public final class Readers {
  private static final List<String> POSTS =
      List.of("header", "form", "json", "cookie", "told", "mark", "pay");
  private static final List<String> GETS = List.of("query", "token", "cost");

  private Readers() {}

  public static void main(String[] args) throws Exception {
    int port = Integer.parseInt(args[0]);
    if (args[1].equals("tomcat")) {
      tomcat(port, args[2]);
    } else {
      jetty(port, args[2]);
    }
  }

  private static Map<String, Reader> servlets() {
    Map<String, Reader> all = new TreeMap<>();
    POSTS.forEach(route -> all.put("/v1/" + route, new Reader(route, "POST")));
    GETS.forEach(route -> all.put("/v1/" + route, new Reader(route, "GET")));
    all.put("/v1/users/*", new Reader("users", "GET"));
    all.put("/v1/any", new Reader("any", ""));
    all.put("/", new Reader("other", ""));
    return all;
  }

  private static void tomcat(int port, String folder) throws Exception {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder);
    tomcat.setHostname("127.0.0.1");
    tomcat.setPort(port);
    tomcat.getConnector().setProperty("address", "127.0.0.1");
    var context = tomcat.addContext("", folder);
    servlets()
        .forEach(
            (path, servlet) -> {
              var wrapper = Tomcat.addServlet(context, servlet.route, servlet);
              wrapper.setMultipartConfigElement(new MultipartConfigElement(folder));
              wrapper.addMapping(path);
            });
    tomcat.start();
    tomcat.getServer().await();
  }

  private static void jetty(int port, String folder) throws Exception {
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server, 1, 1);
    connector.setHost("127.0.0.1");
    connector.setPort(port);
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler("/");
    servlets()
        .forEach(
            (path, servlet) -> {
              ServletHolder holder = new ServletHolder(servlet);
              holder.getRegistration().setMultipartConfig(new MultipartConfigElement(folder));
              context.addServlet(holder, path);
            });
    server.setHandler(context);
    server.start();
    server.join();
  }

  /** Answers with what it read. */
  private static final class Reader extends HttpServlet {
    private static final long serialVersionUID = 1;
    private static final ObjectMapper JSON = new ObjectMapper();
    private final String route;
    private final String method;

    Reader(String route, String method) {
      this.route = route;
      this.method = method;
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response)
        throws ServletException, IOException {
      String asked = request.getMethod().equals("HEAD") ? "GET" : request.getMethod();
      boolean ours = method.isEmpty() || method.equals(asked);
      String info = request.getPathInfo();
      ours = ours && (!route.equals("users") || info != null && info.lastIndexOf('/') == 0);
      Map<String, Object> answer = new TreeMap<>();
      answer.put("route", ours ? route : "other");
      answer.put("method", List.of(request.getMethod()));
      answer.put("host", texts(request.getServerName()));
      answer.put("path", info == null || !ours ? List.of() : texts(info.substring(1)));
      answer.put("header", texts(request.getHeader("X-Phone")));
      answer.put("told", texts(request.getHeader("X-Phone-E164")));
      answer.put("counted", texts(request.getHeader("X-Counted")));
      answer.put("authorization", texts(request.getHeader("Authorization")));
      answer.put("mark", texts(request.getHeader("Idempotency-Key")));
      List<String> cookies = new ArrayList<>();
      if (request.getCookies() != null) {
        for (Cookie cookie : request.getCookies()) {
          if (cookie.getName().equals("phone_no")) {
            cookies.add(cookie.getValue());
          }
        }
      }
      answer.put("cookie", cookies);
      List<String> forwarded = new ArrayList<>();
      for (String name : List.of("For", "Host", "Proto")) {
        forwarded.addAll(texts(request.getHeader("X-Forwarded-" + name)));
      }
      answer.put("forwarded", forwarded);
      if (route.equals("json")) {
        answer.put("json", json(request));
      } else {
        parameters(request, answer);
      }
      byte[] text = JSON.writeValueAsBytes(answer);
      response.setHeader("X-Read", Base64.getEncoder().encodeToString(text));
      response.getWriter().println("read");
    }

    // A servlet has one call for the parameters of query and form together.
    private void parameters(HttpServletRequest request, Map<String, Object> answer)
        throws ServletException, IOException {
      String type = request.getContentType();
      if (type != null && type.toLowerCase().startsWith("multipart/form-data")) {
        request.getParts();
      }
      String place = route.equals("form") ? "form" : "query";
      answer.put(place, texts(request.getParameterValues("phone_no")));
      answer.put("cost", texts(request.getParameterValues("cost_no")));
    }

    private static List<String> json(HttpServletRequest request) throws IOException {
      List<String> all = new ArrayList<>();
      JsonNode body;
      try {
        body = JSON.readTree(request.getInputStream());
      } catch (com.fasterxml.jackson.core.JacksonException e) {
        return all;
      }
      if (body != null && body.has("phone_no")) {
        collect(body.get("phone_no"), all);
      }
      return all;
    }

    private static void collect(JsonNode node, List<String> all) {
      if (node.isContainerNode()) {
        node.forEach(child -> collect(child, all));
      } else if (!node.isNull()) {
        all.add(node.asText());
      }
    }

    private static List<String> texts(String... values) {
      return values == null || values.length == 1 && values[0] == null ? List.of() : List.of(values);
    }
  }
}
