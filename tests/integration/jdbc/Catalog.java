import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;

/** Prints what JDBC's DatabaseMetaData says of one table and one view, as lines of `what: a|b|c`. */
public class Catalog {
  public static void main(String[] args) throws Exception {
    String table = args[1];
    String view = args[2];
    try (Connection connection = DriverManager.getConnection(args[0])) {
      DatabaseMetaData meta = connection.getMetaData();
      String[] kinds = {"TABLE", "VIEW", "MATERIALIZED VIEW"};
      print("table", meta.getTables(null, "public", "jd\\_%", kinds), "TABLE_NAME", "TABLE_TYPE");
      print("column", meta.getColumns(null, "public", table, "%"),
          "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE");
      print("schema", meta.getSchemas(), "TABLE_SCHEM");
      print("catalog", meta.getCatalogs(), "TABLE_CAT");
      print("key", meta.getPrimaryKeys(null, "public", table), "COLUMN_NAME");
      print("index", meta.getIndexInfo(null, "public", view, false, true),
          "INDEX_NAME", "ORDINAL_POSITION", "COLUMN_NAME");
      print("type", meta.getTypeInfo(), "TYPE_NAME", "DATA_TYPE");
      print("imported", meta.getImportedKeys(null, "public", table), "PKTABLE_NAME");
      print("function", meta.getFunctions(null, "public", "%"), "FUNCTION_NAME");
      print("procedure", meta.getProcedures(null, "public", "%"), "PROCEDURE_NAME");
      print("function column", meta.getFunctionColumns(null, null, "array\\_in", "%"),
          "FUNCTION_NAME", "COLUMN_NAME", "TYPE_NAME");
      System.out.println("default isolation: " + meta.getDefaultTransactionIsolation());
      print("user type", meta.getUDTs(null, "public", "%", null), "TYPE_NAME");
      print("best row", meta.getBestRowIdentifier(null, "public", table, 0, true), "COLUMN_NAME");
      String query = "SELECT id, name FROM " + table + " WHERE id = ?";
      try (PreparedStatement statement = connection.prepareStatement(query)) {
        ResultSetMetaData columns = statement.getMetaData();
        for (int i = 1; i <= columns.getColumnCount(); i++) {
          System.out.println("result: " + columns.getColumnName(i) + "|"
              + columns.getColumnTypeName(i) + "|" + columns.isAutoIncrement(i));
        }
      }
    }
  }

  private static void print(String what, ResultSet rows, String... names) throws Exception {
    while (rows.next()) {
      StringBuilder line = new StringBuilder(what).append(": ");
      for (int i = 0; i < names.length; i++) {
        line.append(i > 0 ? "|" : "").append(rows.getString(names[i]));
      }
      System.out.println(line);
    }
  }
}
