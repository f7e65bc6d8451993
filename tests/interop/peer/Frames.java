// Reads frames with Kafka's own classes: one a line on standard input, `request|response API VERSION HEX` (an answer has
// the API and version of its question). One line of JSON comes back for each: the message as Kafka sees it, and whether
// Kafka would have written the very same bytes.
import com.fasterxml.jackson.databind.JsonNode;
import java.io.*;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;

public class Frames {
    static ByteBuffer written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.flip();
    }

    static JsonNode json(Message message, short version) throws ReflectiveOperationException {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class, boolean.class);
        return (JsonNode) write.invoke(null, message, version, false);
    }

    static String read(String kind, short key, short version, byte[] frame) throws Exception {
        ApiKeys api = ApiKeys.forId(key);
        boolean asks = kind.equals("request");
        ByteBuffer buffer = ByteBuffer.wrap(frame);
        ByteBufferAccessor in = new ByteBufferAccessor(buffer);
        short headerVersion = asks ? api.requestHeaderVersion(version) : api.responseHeaderVersion(version);
        Message header = asks ? new RequestHeaderData(in, headerVersion) : new ResponseHeaderData(in, headerVersion);
        ApiMessage body = asks ? api.messageType.newRequest() : api.messageType.newResponse();
        body.read(in, version);
        int left = buffer.remaining();
        ByteBuffer head = written(header, headerVersion), tail = written(body, version);
        ByteBuffer again = ByteBuffer.allocate(head.remaining() + tail.remaining()).put(head).put(tail).flip();
        boolean same = left == 0 && again.equals(ByteBuffer.wrap(frame));
        return "{\"name\":\"" + api.name + "\",\"same\":" + same + ",\"left\":" + left + ",\"header\":"
            + json(header, headerVersion) + ",\"body\":" + json(body, version) + "}";
    }

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                System.out.println(read(words[0], Short.parseShort(words[1]), Short.parseShort(words[2]),
                    HexFormat.of().parseHex(words[3])));
            } catch (Exception error) {
                System.out.println("{\"error\":\"" + String.valueOf(error).replaceAll("[\"\\\\\n]", " ") + "\"}");
            }
        }
    }
}
