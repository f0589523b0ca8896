# Sinatra on Puma.
#
#   ruby server.rb PORT
require 'base64'
require 'json'
require 'puma'
require 'rack/handler/puma'
require 'sinatra/base'

class Readers < Sinatra::Base
  set :protection, false
  set :logging, false
  set :environment, :production

  # texts are all that a program could take a value for.
  def texts(value)
    case value
    when nil then []
    when Hash then value.values.flat_map { |v| texts(v) }
    when Array then value.flat_map { |v| texts(v) }
    else
      # Bytes that are no UTF-8 are told as U+E000 and more.
      text = value.to_s.dup.force_encoding('UTF-8')
      [text.valid_encoding? ? text : text.bytes.map { |b| (b < 0x80 ? b : 0xe000 + b) }.pack('U*')]
    end
  end

  def read(route, phone = nil)
    body = begin
      JSON.parse(request.body.tap(&:rewind).read)
    rescue JSON::ParserError, EncodingError
      nil
    end
    answer = {
      route: route,
      method: [request.request_method],
      host: texts(request.host),
      path: texts(phone),
      header: texts(env['HTTP_X_PHONE']),
      query: texts(request.GET['phone_no']),
      form: texts(request.POST['phone_no']),
      params: texts(request.params['phone_no']),
      json: body.is_a?(Hash) ? texts(body['phone_no']) : [],
      cookie: texts(request.cookies['phone_no']),
      told: texts(env['HTTP_X_PHONE_E164']),
      counted: texts(env['HTTP_X_COUNTED']),
      authorization: texts(env['HTTP_AUTHORIZATION']),
      mark: texts(env['HTTP_IDEMPOTENCY_KEY']),
      cost: texts(request.GET['cost_no']),
      forwarded: %w[FOR HOST PROTO].flat_map { |n| texts(env["HTTP_X_FORWARDED_#{n}"]) }
    }
    headers 'X-Read' => Base64.strict_encode64(JSON.generate(answer))
    "read\n"
  end

  %w[header form json cookie told mark pay].each { |name| post("/v1/#{name}") { read(name) } }
  %w[query token cost].each { |name| get("/v1/#{name}") { read(name) } }
  get('/v1/users/:phone') { read('users', params['phone']) }
  %w[get post put patch delete options].each { |verb| send(verb, '/v1/any') { read('any') } }
  not_found do
    status 200
    read('other')
  end
end

Rack::Handler::Puma.run(Readers, Host: '127.0.0.1', Port: ARGV[0].to_i, Threads: '4:4', Silent: true)
